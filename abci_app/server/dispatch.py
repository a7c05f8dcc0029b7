"""From a request to the bytes of its answer, and which requests may run beside which."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError, Message

from abci_app.execution import Unverified
from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import frame
from abci_app.server.grammar import CallGrammar


class AbciApplication(Protocol):
    """What the server drives: one method per ABCI call, CheckTx also in two halves. An exception out of any of them is
    a bug and stops the node.

    The consensus calls (init_chain, prepare_proposal, process_proposal, extend_vote, verify_vote_extension,
    finalize_block, commit) come one at a time, in order. The others may run in other threads beside them.
    """

    def info(self, request: pb.RequestInfo) -> pb.ResponseInfo: ...
    def query(self, request: pb.RequestQuery) -> pb.ResponseQuery: ...
    def check_tx(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx: ...
    def begin_check(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx | Unverified: ...
    def end_check(self, unverified: Unverified, *, good: bool) -> pb.ResponseCheckTx: ...
    def init_chain(self, request: pb.RequestInitChain) -> pb.ResponseInitChain: ...
    def prepare_proposal(self, request: pb.RequestPrepareProposal) -> pb.ResponsePrepareProposal: ...
    def process_proposal(self, request: pb.RequestProcessProposal) -> pb.ResponseProcessProposal: ...
    def extend_vote(self, request: pb.RequestExtendVote) -> pb.ResponseExtendVote: ...
    def verify_vote_extension(self, request: pb.RequestVerifyVoteExtension) -> pb.ResponseVerifyVoteExtension: ...
    def finalize_block(self, request: pb.RequestFinalizeBlock) -> pb.ResponseFinalizeBlock: ...
    def commit(self, request: pb.RequestCommit) -> pb.ResponseCommit: ...
    def list_snapshots(self, request: pb.RequestListSnapshots) -> pb.ResponseListSnapshots: ...
    def offer_snapshot(self, request: pb.RequestOfferSnapshot) -> pb.ResponseOfferSnapshot: ...
    def load_snapshot_chunk(self, request: pb.RequestLoadSnapshotChunk) -> pb.ResponseLoadSnapshotChunk: ...
    def apply_snapshot_chunk(self, request: pb.RequestApplySnapshotChunk) -> pb.ResponseApplySnapshotChunk: ...


class Lane(Enum):
    """Where a request runs."""

    INLINE = "inline"
    """In the event loop: nothing to compute."""
    CHECK = "check"
    """In the event loop together with its neighbours, but for the signatures: many at once, in other processes."""
    READ = "read"
    """In the pool."""
    CONSENSUS = "consensus"
    """In the one consensus thread."""


LANES: Final[dict[str, Lane]] = {
    "echo": Lane.INLINE,
    "flush": Lane.INLINE,
    "check_tx": Lane.CHECK,
    "info": Lane.READ,
    "query": Lane.READ,
    "list_snapshots": Lane.READ,
    "load_snapshot_chunk": Lane.READ,
    "offer_snapshot": Lane.CONSENSUS,
    "apply_snapshot_chunk": Lane.CONSENSUS,
    "init_chain": Lane.CONSENSUS,
    "prepare_proposal": Lane.CONSENSUS,
    "process_proposal": Lane.CONSENSUS,
    "extend_vote": Lane.CONSENSUS,
    "verify_vote_extension": Lane.CONSENSUS,
    "finalize_block": Lane.CONSENSUS,
    "commit": Lane.CONSENSUS,
}


class RequestError(ValueError):
    """The message in a frame is not a request of ABCI 2.0."""


class Call:
    """One request, parsed."""

    __slots__ = ("lane", "method", "request", "size")

    def __init__(self, message: bytes) -> None:
        """Raises: RequestError when `message` is not a request."""
        try:
            envelope = pb.Request.FromString(message)
        except DecodeError as error:
            raise RequestError(f"a frame of {len(message)} bytes that is not an ABCI request") from error
        method = envelope.WhichOneof("value")
        if method is None:
            raise RequestError(
                "a request of a kind that ABCI 2.0 does not have "
                '(insert_tx and reap_txs of mempool type "app" are not answered; the type should be "flood")'
            )
        self.size = len(message)
        self.method: str = method
        self.request: Any = getattr(envelope, method)
        self.lane = LANES[method]


class Dispatcher:
    """Answers calls. Safe to use from several threads as far as the application allows."""

    def __init__(self, application: AbciApplication, grammar: CallGrammar | None = None) -> None:
        """`grammar`: asserts the order of the calls."""
        self._grammar = grammar
        self._application = application
        self._methods: dict[str, Callable[[Any], Message]] = {
            name: getattr(application, name) for name, lane in LANES.items() if lane is not Lane.INLINE
        }
        self._methods["echo"] = lambda request: pb.ResponseEcho(message=request.message)
        self._methods["flush"] = lambda request: pb.ResponseFlush()
        self._framed_last: tuple[pb.ResponseCheckTx | None, bytes] = (None, b"")

    def answer(self, *calls: Call) -> bytes:
        """The framed responses to `calls`, in order.

        Raises: IllegalCall when the order is asserted and broken.
        """
        return b"".join(map(self._answer, calls))

    def begin(self, call: Call) -> bytes | Unverified:
        """The framed response, unless it is CheckTx and depends on the signature."""
        if call.lane is not Lane.CHECK:
            return self._answer(call)
        found = self._application.begin_check(call.request)
        return found if isinstance(found, Unverified) else self._framed_check(found)

    def end(self, unverified: Unverified, *, good: bool) -> bytes:
        """The framed response to CheckTx once the signature is known to be `good` or not."""
        return self._framed_check(self._application.end_check(unverified, good=good))

    def _framed_check(self, answer: pb.ResponseCheckTx) -> bytes:
        """An application that answers with the same object again means the same answer; most are alike."""
        last, framed = self._framed_last
        if answer is not last:
            framed = frame(pb.Response(check_tx=answer).SerializeToString())
            self._framed_last = answer, framed
        return framed

    def _answer(self, call: Call) -> bytes:
        if self._grammar is not None:
            self._grammar.check(call.method, call.request)
        answer: Any = {call.method: self._methods[call.method](call.request)}
        return frame(pb.Response(**answer).SerializeToString())


def exception_answer(reason: str) -> bytes:
    """The framed response that tells the other side why its connection ends."""
    return frame(pb.Response(exception=pb.ResponseException(error=reason)).SerializeToString())
