"""Inputs that reach deep at once, for the fuzzer to change: what CometBFT really sends, and real transactions."""

from abci_app import messages as m
from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import frame
from primitives.encoding import encode
from tests.abci_app.kit import block, init_chain, transfer
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, address
from tests.abci_app.rules.rounds_kit import ROOT
from tests.fuzz.instances import SENDERS, envelope, good_messages
from tests.fuzz.reader import MESSAGES


def seeds_of(target: str) -> list[bytes]:
    """Never empty."""
    if target == "frames":
        return [bytes([step]) + b"".join(map(frame, _requests())) for step in (0, 6, 39)] + [
            b"\x05\x80\x80\x80\x80\x7f"
        ]
    if target == "requests":
        return _requests()
    if target in ("transactions", "check_tx"):
        return _transactions() + _scenarios(0)
    return _scenarios(1 if target == "proposals" else 0)


def _requests() -> list[bytes]:
    requests = [
        pb.Request(echo=pb.RequestEcho(message="hello")),
        pb.Request(flush=pb.RequestFlush()),
        pb.Request(info=pb.RequestInfo(version="0.38.26")),
        pb.Request(init_chain=init_chain()),
        pb.Request(query=pb.RequestQuery(path=b"key", data=b"account/", prove=True)),
        pb.Request(check_tx=pb.RequestCheckTx(tx=transfer(0), type=pb.RECHECK)),
        pb.Request(finalize_block=block(1, [transfer(0)])),
        pb.Request(commit=pb.RequestCommit()),
        pb.Request(apply_snapshot_chunk=pb.RequestApplySnapshotChunk(index=1, chunk=b"chunk", sender="peer")),
    ]
    return [request.SerializeToString() for request in requests]


def _transactions() -> list[bytes]:
    messages: list[m.Message] = [
        m.Transfer(to=address("bob"), amount=5),
        m.Unbond(amount=TOKEN),
        m.AttestState(job_id=1, round_index=0, state_root=ROOT, rejected=()),
    ]
    signed = [envelope(encode([CHAIN_ID, 0, 10**6, 0, [message]]), "alice") for message in messages]
    return [*signed, transfer(0), transfer(1, num_messages=3)]


def _scenarios(lead: int) -> list[bytes]:
    """Each kind of message from a worker and from a validator; each good one from everybody; repeats, flips, raw bytes.

    The bytes are those that `instances.read_txs` reads: kind, sender, one message, whether a good one, which, fee.
    """
    scenarios = [bytes([0, sender, 0, 0, kind, *range(1, 40)]) for kind in range(len(MESSAGES)) for sender in (1, 3)]
    scenarios += [
        bytes([0, sender, 0, 2, which, 0]) for which in range(len(good_messages())) for sender in range(len(SENDERS))
    ]
    both_attest = bytes([0, 1, 0, 2, 1, 0, 0, 2, 0, 2, 1, 0])
    scenarios += [both_attest, bytes([0, 1, 0, 2, 0, 0, 4, 0, 5, 0, 0, 9, 3, 7, 10, *range(200, 240)])]
    return [bytes(lead) + scenario for scenario in scenarios]
