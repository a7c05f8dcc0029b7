"""Transactions in parsed form, and the memory of those that CheckTx found good.

One transaction is looked at many times: by CheckTx, again after each block while it waits, by PrepareProposal,
ProcessProposal and FinalizeBlock. What depends on its bytes alone (decoding, form, signature) is done the first time.
The memory only saves time: what is missing from it is parsed and verified anew, with the same result.
"""

import threading
from typing import Final

import msgspec

from abci_app.forms import check_body_form
from abci_app.transactions import Transaction, TxBody, check_signature, decode_transaction, tx_hash
from abci_app.work import total_work

MAX_KNOWN: Final = 50_000
"""Ten times what waits in the mempool: whatever is checked is still known when its block comes."""
MAX_KNOWN_BYTES: Final = 64 * 1024 * 1024
"""Of raw transactions; the parsed form takes a few times that."""


class ParsedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction that decodes, with what follows from its bytes."""

    raw: bytes
    envelope: Transaction
    body: TxBody
    sender: bytes
    work: int
    hash: bytes


def parse_transaction(tx: bytes) -> ParsedTransaction:
    """Decode; form and signature are not looked at.

    Raises: TransactionTooLarge, MalformedTransaction.
    """
    envelope, body = decode_transaction(tx)
    return ParsedTransaction(tx, envelope, body, envelope.sender, total_work(body.messages), tx_hash(tx))


def verify_transaction(tx: bytes) -> ParsedTransaction:
    """Decode, and check form and signature: all that can be said of the bytes alone.

    Raises: InvalidTransaction.
    """
    parsed = parse_transaction(tx)
    check_body_form(parsed.body)
    check_signature(parsed.envelope)
    return parsed


class KnownTransactions:
    """Transactions whose form and signature are good, the oldest dropped first. Thread-safe."""

    def __init__(self, limit: int = MAX_KNOWN, limit_bytes: int = MAX_KNOWN_BYTES) -> None:
        self._limit, self._limit_bytes = limit, limit_bytes
        self._by_bytes: dict[bytes, ParsedTransaction] = {}
        self._size_bytes = 0
        self._lock = threading.Lock()

    def find(self, tx: bytes) -> ParsedTransaction | None:
        """The transaction with exactly these bytes, when it is known to be good."""
        return self._by_bytes.get(tx)

    def add(self, parsed: ParsedTransaction) -> None:
        """Remember a transaction that was verified just now."""
        with self._lock:
            if parsed.raw in self._by_bytes:
                return
            self._by_bytes[parsed.raw] = parsed
            self._size_bytes += len(parsed.raw)
            while len(self._by_bytes) > self._limit or self._size_bytes > self._limit_bytes:
                oldest = next(iter(self._by_bytes))
                del self._by_bytes[oldest]
                self._size_bytes -= len(oldest)

    def __len__(self) -> int:
        return len(self._by_bytes)
