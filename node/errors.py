"""What can go wrong between a client, a node and its engine.

NodeError
+-- NodeUnreachable      no answer: not running, wrong address, network
+-- RpcError             an answer that says no: JSON-RPC code and message
|   +-- EngineRefused    CometBFT answered a call of ours with an error
+-- TransactionFailed    the chain refused a transaction, or it can no longer be included
|   +-- NonceUsed        another transaction of the account has taken its nonce: these bytes never apply
+-- TransactionPending   not committed within the time given; it may still be
|   +-- FateUnknown      its nonce is used, maybe by itself: the node lacks the blocks in which it would be
+-- ProofError           an answer that the block header does not vouch for
+-- SetupError           a node that cannot start: configuration, keys, ports, paths
    +-- EngineMissing    CometBFT was not found or could not be built
"""

from typing import Final

from abci_app.errors import WrongNonce

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
"""A bug of ours, or an engine that answers in a form we do not know; the node's log has the details."""
NOT_READY: Final = -32001
"""The engine or the application does not answer (starting, restarting, catching up)."""
RATE_LIMITED: Final = -32002
MEMPOOL_FULL: Final = -32003
UNREADABLE: Final = -32004
"""The engine answered in a form that we do not know."""
FORBIDDEN: Final = -32005

NOT_INCLUDED: Final = 0
"""`TransactionFailed.code` of a transaction that was never included and never will be."""


class NodeError(Exception):
    """Base of all of them."""


class NodeUnreachable(NodeError):
    """No answer from a node."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no answer from {url}: {reason}. Is the node running (outerstep node start), and is this its address?"
        )
        self.url = url
        self.reason = reason


class RpcError(NodeError):
    """The node answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message


class EngineRefused(RpcError):
    """CometBFT answered `method` with an error. `reason` is its own text: for logs, never for callers."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(
            NOT_READY, f"the engine of this node could not answer ({method}); it may be starting. Try again."
        )
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message} It said: {self.reason}"


class TransactionFailed(NodeError):
    """Refused by the rules (`code` as in abci_app.errors), or code 0: not included before its last valid height."""

    def __init__(self, code: int, log: str, *, tx_hash: bytes = b"", height: int = 0) -> None:
        name = f"transaction {tx_hash.hex()[:16]}" if tx_hash else "the transaction"
        super().__init__(f"{name} failed with code {code}: {log}")
        self.code = code
        self.log = log
        self.tx_hash = tx_hash
        self.height = height


class NonceUsed(TransactionFailed):
    """Another transaction of the account has taken its nonce, so these bytes can never apply."""

    def __init__(self, tx_hash: bytes) -> None:
        super().__init__(WrongNonce.code, "another transaction used its nonce", tx_hash=tx_hash)


class TransactionPending(NodeError):
    """Sent, yet not in a block within the time given; ask for `tx_hash` later, or submit the same bytes again."""

    def __init__(self, tx_hash: bytes) -> None:
        super().__init__(f"transaction {tx_hash.hex()} is not in a block within the time given; it may still come")
        self.tx_hash = tx_hash


class FateUnknown(TransactionPending):
    """Its nonce is used up, by itself or by another transaction: the node has joined by state sync after it was signed.

    Nothing may be signed in its place before another node has been asked.
    """

    def __init__(self, tx_hash: bytes, first_height: int) -> None:
        super().__init__(tx_hash)
        self.args = (
            f"this node has no blocks below {first_height} (it joined by state sync), so it cannot tell whether "
            f"transaction {tx_hash.hex()} is in one of them; ask another node",
        )


class ProofError(NodeError):
    """The answer does not follow from the app hash in the block header."""


class SetupError(NodeError):
    """A node cannot be made or started; the message says what to do."""


class EngineMissing(SetupError):
    """No usable CometBFT was found, or it could not be built."""
