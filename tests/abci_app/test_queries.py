"""ABCI Query: records, proofs, ranges, and every malformed question."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app import tables
from abci_app.application import Application
from abci_app.proofs import PROOF_TYPE, KeyProof, check_key_proof
from abci_app.queries import HEIGHT_UNAVAILABLE, MALFORMED_DATA, MAX_RANGE_ITEMS, UNKNOWN_PATH
from abci_app.records import Account
from abci_app.server import abci_pb2 as pb
from abci_app.server.dispatch import Call
from abci_app.store import Store
from primitives.encoding import decode, encode
from tests.abci_app.kit import BOB, RICH, block, init_chain, run_block, transfer

BOBS = tables.ACCOUNTS.key(BOB.address)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    with Store(tmp_path_factory.mktemp("app")) as store:
        application = Application(store)
        application.init_chain(init_chain())
        run_block(application, 1, [transfer(0)])
        yield application


def ask(application: Application, path: str, data: bytes, *, height: int = 0, prove: bool = False) -> pb.ResponseQuery:
    return application.query(pb.RequestQuery(path=path.encode(), data=data, height=height, prove=prove))


def test_a_record_by_its_key(application: Application) -> None:
    answer = ask(application, "key", BOBS)
    assert (answer.code, answer.key, answer.height) == (0, BOBS, 1)
    assert decode(answer.value, Account) == Account(balance=RICH + 5)
    assert not answer.proof_ops.ops


@pytest.mark.parametrize("key", [BOBS, tables.ACCOUNTS.key(b"\x01" * 20), b"no table"])
def test_records_and_their_absence_come_with_proofs(application: Application, key: bytes) -> None:
    answer = ask(application, "key", key, prove=True)
    (operator,) = answer.proof_ops.ops
    assert (operator.type, operator.key) == (PROOF_TYPE, key)
    proof = KeyProof.from_bytes(operator.data)
    assert proof.key == key
    assert (proof.value or b"") == answer.value
    check_key_proof(application.info(pb.RequestInfo()).last_block_app_hash, proof)


def test_a_range_is_in_key_order_and_can_be_continued(application: Application) -> None:
    prefix = tables.ACCOUNTS.prefix
    everything = decode(ask(application, "range", encode([prefix, b"", 1000])).value, list[tuple[bytes, bytes]])
    assert len(everything) >= 2
    assert everything == sorted(everything)
    assert dict(everything)[BOBS] == ask(application, "key", BOBS).value
    first = decode(ask(application, "range", encode([prefix, b"", 1])).value, list[tuple[bytes, bytes]])
    assert first == everything[:1]
    rest = ask(application, "range", encode([prefix, first[-1][0] + b"\x00", 1000]))
    assert decode(rest.value, list[tuple[bytes, bytes]]) == everything[1:]
    nothing = ask(application, "range", encode([b"no table", b"", 10]))
    assert (nothing.code, nothing.value) == (0, encode([]))


@pytest.mark.parametrize(
    ("path", "data", "height", "code"),
    [
        ("", b"", 0, UNKNOWN_PATH),
        ("/key", BOBS, 0, UNKNOWN_PATH),
        ("key", b"", 0, MALFORMED_DATA),
        ("key", BOBS, 2, HEIGHT_UNAVAILABLE),
        ("key", BOBS, -1, HEIGHT_UNAVAILABLE),
        ("range", b"", 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", 0]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", -1]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", MAX_RANGE_ITEMS + 1]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", True]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", 1.0]), 0, MALFORMED_DATA),
        ("range", encode(["a", b"", 1]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", 1, 1]), 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", 1]) + b"\x00", 0, MALFORMED_DATA),
        ("range", encode([b"a", b"", 1]), 7, HEIGHT_UNAVAILABLE),
    ],
)
def test_a_malformed_query_gets_its_code_and_a_reason(
    application: Application, path: str, data: bytes, height: int, code: int
) -> None:
    for prove in (False, True):
        answer = ask(application, path, data, height=height, prove=prove)
        assert answer.code == code
        assert answer.log
        assert answer.value == b""


@given(path=st.sampled_from(["key", "range", "x"]), data=st.binary(max_size=60), prove=st.booleans())
def test_any_query_is_answered(application: Application, path: str, data: bytes, prove: bool) -> None:
    assert ask(application, path, data, prove=prove).code in (0, UNKNOWN_PATH, MALFORMED_DATA)


def test_a_path_that_is_no_text_is_refused_and_does_not_end_the_connection(application: Application) -> None:
    """CometBFT's RPC turns ``/abci_query?path=0xff`` into this request, whoever asks."""
    call = Call(bytes.fromhex("32031201ff"))
    answer = application.query(call.request)
    assert (answer.code, answer.value) == (UNKNOWN_PATH, b"")


def test_queries_see_the_last_committed_state_while_a_block_is_under_way(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        application = Application(store)
        application.init_chain(init_chain())
        assert ask(application, "key", BOBS).value == b""
        run_block(application, 1)
        before = ask(application, "key", BOBS, prove=True)
        application.finalize_block(block(2, [transfer(0)]))
        assert ask(application, "key", BOBS, prove=True) == before
        application.commit(pb.RequestCommit())
        assert ask(application, "key", BOBS).value != before.value
