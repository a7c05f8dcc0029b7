"""What is fuzzed: each target takes any bytes, and raises AssertionError, or what escaped, when a promise is broken."""

from collections.abc import Callable
from typing import Final

from abci_app.errors import InvalidTransaction
from abci_app.forms import check_form
from abci_app.ledger import conservation_gap
from abci_app.server import abci_pb2 as pb
from abci_app.server.dispatch import LANES, Call, RequestError
from abci_app.server.frames import FrameError, FrameParser, frame
from abci_app.state import MemoryState
from abci_app.transactions import decode_transaction
from primitives.encoding import encode
from tests.fuzz.instances import Instance, finalize_request, read_txs, two_instances
from tests.fuzz.reader import Reader

SMALL_FRAME_BYTES: Final = 300


def frames(data: bytes) -> None:
    """The stream means the same however reads cut it, and a frame of ours comes back as it went in."""
    reader = Reader(data)
    step = 1 + reader.byte() % 40
    stream = reader.rest()
    whole, whole_refused = _parse([stream])
    parts, parts_refused = _parse([stream[i : i + step] for i in range(0, len(stream), step)])
    assert whole_refused == parts_refused
    assert whole_refused or whole == parts
    assert FrameParser().feed(frame(stream)) == [stream]


def _parse(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    """The messages, and whether the stream was refused."""
    parser, messages = FrameParser(SMALL_FRAME_BYTES), list[bytes]()
    try:
        for chunk in chunks:
            messages += parser.feed(chunk)
            assert parser.pending_bytes <= SMALL_FRAME_BYTES + 5
    except FrameError:
        return messages, True
    return messages, False


def requests(data: bytes) -> None:
    """A message is a request of a known kind, or refused."""
    try:
        call = Call(data)
    except RequestError:
        return
    assert call.method in LANES


def transactions(data: bytes) -> None:
    """A transaction is refused by name, or it is the one encoding of what it says."""
    try:
        envelope, body = decode_transaction(data)
    except InvalidTransaction:
        return
    assert encode(envelope) == data
    assert encode(body) == envelope.body
    for message in body.messages:
        try:
            check_form(message)
        except InvalidTransaction:
            continue


def check_tx(data: bytes) -> None:
    """CheckTx never raises, RECHECK neither, and two nodes say the same."""
    first, second = two_instances()
    for tx in [data, *read_txs(Reader(data), first.committed)]:
        for kind in (pb.CheckTxType.NEW, pb.RECHECK):
            request = pb.RequestCheckTx(tx=tx, type=kind)
            answers = [one.application.check_tx(request).SerializeToString() for one in (first, second)]
            assert answers[0] == answers[1]
    for one in (first, second):
        one.application._waiting.next_block()


def proposals(data: bytes) -> None:
    """Nodes agree on every proposal, and accept whatever one of them proposes."""
    first, second = two_instances()
    reader = Reader(data)
    limit = reader.choose((0, 100, 1000, 1 << 20))
    txs = read_txs(reader, first.committed)
    verdicts = {_verdict(one, txs) for one in (first, second)}
    assert verdicts in ({pb.ResponseProcessProposal.ACCEPT}, {pb.ResponseProcessProposal.REJECT})
    request = pb.RequestPrepareProposal(txs=txs, max_tx_bytes=limit, height=_next_height(first))
    chosen = list(first.application.prepare_proposal(request).txs)
    assert sum(len(frame(tx)) + 1 for tx in chosen) <= limit
    assert _verdict(second, chosen) == pb.ResponseProcessProposal.ACCEPT


def finalize_block(data: bytes) -> None:
    """One result for each transaction, the same on a node whose mempool knew them and on one that never saw them; no
    money comes or goes."""
    first, second = two_instances()
    reader = Reader(data)
    txs = read_txs(reader, first.committed)
    request = finalize_request(reader, _next_height(first), txs)
    for tx in txs:
        first.application.check_tx(pb.RequestCheckTx(tx=tx))
    answers = [one.application.finalize_block(request) for one in (first, second)]
    assert answers[0].SerializeToString(deterministic=True) == answers[1].SerializeToString(deterministic=True)
    assert len(answers[0].tx_results) == len(txs)
    assert all(update.power >= 0 for update in answers[0].validator_updates)
    assert conservation_gap(_state_after(first)) == 0
    first.application._waiting.next_block()


def _verdict(instance: Instance, txs: list[bytes]) -> int:
    request = pb.RequestProcessProposal(txs=txs, height=_next_height(instance))
    return int(instance.application.process_proposal(request).status)


def _next_height(instance: Instance) -> int:
    return instance.store.committed.height + 1


def _state_after(instance: Instance) -> MemoryState:
    """The state that Commit would write."""
    prepared = instance.application._prepared
    assert prepared is not None
    after = MemoryState(instance.committed.items)
    for key, value in prepared.writes.items():
        if value is None:
            after.items.pop(key, None)
        else:
            after.items[key] = value
    return after


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target for target in (frames, requests, transactions, check_tx, proposals, finalize_block)
}
