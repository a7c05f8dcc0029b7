"""The ABCI methods over the real rules and a real store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from abci_app import tables
from abci_app.application import Application, CallOrderError
from abci_app.params import GenesisError
from abci_app.server import abci_pb2 as pb
from abci_app.store import Store
from primitives.hashing import sha256
from tests.abci_app.kit import (
    ALICE,
    BOB,
    CONSENSUS_KEY,
    OPERATOR,
    RICH,
    block,
    genesis,
    init_chain,
    run_block,
    transfer,
)

GARBAGE = [b"", b"\x00", b"\xff" * 300, b"\x93\xc4\x01a\xc4\x01b\xc4\x01c", transfer(0)[:-1], transfer(0) + b"\x00"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "app") as store:
        yield store


@pytest.fixture
def application(store: Store) -> Application:
    application = Application(store)
    application.init_chain(init_chain())
    return application


def check(application: Application, tx: bytes, *, recheck: bool = False) -> pb.ResponseCheckTx:
    return application.check_tx(pb.RequestCheckTx(tx=tx, type=pb.RECHECK if recheck else pb.NEW))


def balance(store: Store, address: bytes) -> int:
    account = tables.ACCOUNTS.get(store.committed, address)
    assert account is not None
    return account.balance


def codes(response: pb.ResponseFinalizeBlock) -> list[int]:
    return [result.code for result in response.tx_results]


# --- start --------------------------------------------------------------------------------------------------------
def test_info_of_an_empty_store_asks_for_genesis(store: Store) -> None:
    info = Application(store).info(pb.RequestInfo())
    assert (info.last_block_height, info.last_block_app_hash, info.app_version) == (0, b"", 1)


def test_genesis_may_come_again_after_a_crash_before_the_first_commit(store: Store) -> None:
    first = Application(store)
    app_hash = first.init_chain(init_chain()).app_hash
    finalized = first.finalize_block(block(1, [transfer(0)]))
    second = Application(store)
    assert second.init_chain(init_chain()).app_hash == app_hash
    assert second.init_chain(init_chain()).app_hash == app_hash
    assert run_block(second, 1, [transfer(0)]) == finalized
    assert store.check_integrity() > 0


def test_genesis_over_committed_state_is_refused(application: Application) -> None:
    run_block(application, 1)
    with pytest.raises(CallOrderError, match="stands at height 1: reset both or neither"):
        application.init_chain(init_chain())


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (init_chain(power=99), "should be equal, with power"),
        (init_chain(genesis(b"\x01" * 32)), "should be equal, with power"),
        (init_chain(b"{}"), "app_state"),
        (init_chain(b"\xff"), "app_state"),
        (init_chain(b""), "app_state"),
    ],
)
def test_a_genesis_that_breaks_a_rule_is_refused(store: Store, request_: pb.RequestInitChain, reason: str) -> None:
    with pytest.raises(GenesisError, match=reason):
        Application(store).init_chain(request_)


def test_a_block_before_genesis_is_refused(store: Store) -> None:
    with pytest.raises(CallOrderError, match="before InitChain"):
        Application(store).finalize_block(block(1))
    assert check(Application(store), transfer(0)).code == 1


# --- blocks -------------------------------------------------------------------------------------------------------
def test_info_tells_the_committed_height_not_the_finalized_one(application: Application, store: Store) -> None:
    run_block(application, 1)
    committed = application.info(pb.RequestInfo())
    finalized = application.finalize_block(block(2, [transfer(0)]))
    assert application.info(pb.RequestInfo()) == committed
    assert balance(store, BOB.address) == RICH
    application.commit(pb.RequestCommit())
    info = application.info(pb.RequestInfo())
    assert (info.last_block_height, info.last_block_app_hash) == (2, finalized.app_hash)
    assert balance(store, BOB.address) == RICH + 5


def test_blocks_without_transactions_keep_the_app_hash(application: Application) -> None:
    app_hash = run_block(application, 1, [transfer(0)]).app_hash
    assert [run_block(application, height).app_hash for height in (2, 3)] == [app_hash] * 2
    assert application.info(pb.RequestInfo()).last_block_height == 3


def test_a_block_may_be_finalized_again_and_again(application: Application, store: Store) -> None:
    run_block(application, 1, [transfer(0)])
    first = application.finalize_block(block(2, [transfer(1)]))
    application.finalize_block(block(2, [transfer(1, amount=7)]))
    assert application.finalize_block(block(2, [transfer(1)])) == first
    assert run_block(Application(store), 2, [transfer(1)]) == first


def test_a_restarted_application_knows_its_chain(application: Application, store: Store) -> None:
    run_block(application, 1, [transfer(0)])
    again = Application(store)
    assert check(again, transfer(1)).code == 0
    assert codes(run_block(again, 2, [transfer(1)])) == [0]


@pytest.mark.parametrize("height", [0, 1, 3])
def test_a_block_of_another_height_is_refused(application: Application, height: int) -> None:
    run_block(application, 1)
    with pytest.raises(CallOrderError, match="needs 2"):
        application.finalize_block(block(height))


def test_commit_without_a_block_is_refused(application: Application) -> None:
    with pytest.raises(CallOrderError, match="without a finalized block"):
        application.commit(pb.RequestCommit())


def test_every_byte_string_in_a_block_gets_its_result(application: Application) -> None:
    response = run_block(application, 1, [GARBAGE[0], transfer(0), *GARBAGE, transfer(1)])
    assert len(response.tx_results) == len(GARBAGE) + 3
    assert [code == 0 for code in codes(response)] == [False, True, *[False] * len(GARBAGE), True]


def test_transactions_of_one_sender_in_one_block(application: Application) -> None:
    response = run_block(application, 1, [transfer(0), transfer(1), transfer(3), transfer(2), transfer(1)])
    assert codes(response) == [0, 0, 20, 0, 20]
    assert "the next nonce of this account is 2" in response.tx_results[2].log


def test_a_committed_transaction_is_refused_when_it_comes_again(application: Application, store: Store) -> None:
    run_block(application, 1, [transfer(0)])
    again = Application(store)
    assert check(again, transfer(0)).code == 20
    before = balance(store, ALICE.address)
    assert codes(run_block(again, 2, [transfer(0)])) == [20]
    assert balance(store, ALICE.address) == before


KINDS = (pb.DUPLICATE_VOTE, pb.LIGHT_CLIENT_ATTACK)


def misbehave(application: Application, height: int, *kinds: int) -> None:
    """A block with evidence of these kinds against the one validator."""
    offender = pb.Validator(address=sha256(CONSENSUS_KEY)[:20], power=100)
    request = block(height)
    request.misbehavior.extend(pb.Misbehavior(type=kind, validator=offender, height=1) for kind in kinds)
    application.finalize_block(request)
    application.commit(pb.RequestCommit())


@pytest.mark.parametrize("kind", KINDS, ids=pb.MisbehaviorType.Name)
def test_two_signatures_where_there_may_be_one_cost_bond_once(
    application: Application, store: Store, kind: int
) -> None:
    run_block(application, 1)
    bond = tables.VALIDATORS.get(store.committed, OPERATOR.address).bond
    misbehave(application, 2, pb.MisbehaviorType.UNKNOWN)
    assert tables.VALIDATORS.get(store.committed, OPERATOR.address).bond == bond
    misbehave(application, 3, kind)
    punished = tables.VALIDATORS.get(store.committed, OPERATOR.address)
    assert (punished.bond, punished.jailed) == (bond - bond // 20, True)
    misbehave(application, 4, *KINDS)
    assert tables.VALIDATORS.get(store.committed, OPERATOR.address) == punished


# --- mempool ------------------------------------------------------------------------------------------------------
def test_checks_see_committed_state_only(application: Application) -> None:
    run_block(application, 1)
    application.finalize_block(block(2, [transfer(0)]))
    assert check(application, transfer(0)).code == 0
    application.commit(pb.RequestCommit())
    assert check(application, transfer(0)).code == 20
    assert check(application, transfer(1)).code == 0


def test_checks_work_before_the_first_block(application: Application) -> None:
    assert check(application, transfer(0)).code == 0


def test_the_next_nonces_pass_though_the_first_never_came_into_a_block(application: Application) -> None:
    run_block(application, 1)
    assert [check(application, transfer(nonce)).code for nonce in (0, 1, 2, 0)] == [0, 0, 0, 0]


def test_garbage_is_refused_by_checks_with_a_reason(application: Application) -> None:
    for tx in GARBAGE:
        answer = check(application, tx)
        assert answer.code != 0
        assert answer.log


def bad_signature(tx: bytes) -> bytes:
    return tx[:-1] + bytes([tx[-1] ^ 1])


def test_a_bad_signature_is_refused_by_checks_and_in_blocks(application: Application) -> None:
    forged = bad_signature(transfer(0))
    assert check(application, forged).code == 5
    assert codes(run_block(application, 1, [forged, transfer(0)])) == [5, 0]


def test_a_recheck_never_makes_a_signature_known(application: Application) -> None:
    forged = bad_signature(transfer(0))
    assert check(application, forged, recheck=True).code == 0
    assert codes(run_block(application, 1, [forged])) == [5]


def test_a_recheck_drops_what_can_no_longer_pass(application: Application) -> None:
    late = transfer(1, valid_until_height=2)
    assert check(application, late).code == 0
    run_block(application, 1, [transfer(0)])
    assert check(application, transfer(0), recheck=True).code == 20
    assert check(application, late, recheck=True).code == 0
    run_block(application, 2)
    assert check(application, late, recheck=True).code == 21


def test_results_do_not_depend_on_what_was_checked_before(tmp_path: Path) -> None:
    txs = [transfer(0), bad_signature(transfer(1)), transfer(1), transfer(0, sender=BOB)]
    answers = []
    for name in ("cold", "warm"):
        with Store(tmp_path / name) as store:
            application = Application(store)
            application.init_chain(init_chain())
            if name == "warm":
                assert [check(application, tx).code for tx in txs] == [0, 5, 0, 0]
            answers.append(run_block(application, 1, txs))
    assert answers[0] == answers[1]
    assert codes(answers[0]) == [0, 5, 0, 0]


# --- the rest -----------------------------------------------------------------------------------------------------
def test_snapshots_and_vote_extensions_get_honest_minimal_answers(application: Application) -> None:
    assert not application.list_snapshots(pb.RequestListSnapshots()).snapshots
    assert application.offer_snapshot(pb.RequestOfferSnapshot()).result == pb.ResponseOfferSnapshot.REJECT_FORMAT
    assert application.load_snapshot_chunk(pb.RequestLoadSnapshotChunk()).chunk == b""
    answer = application.apply_snapshot_chunk(pb.RequestApplySnapshotChunk())
    assert answer.result == pb.ResponseApplySnapshotChunk.ABORT
    assert application.extend_vote(pb.RequestExtendVote()).vote_extension == b""
    statuses = pb.ResponseVerifyVoteExtension
    verify = application.verify_vote_extension
    assert verify(pb.RequestVerifyVoteExtension()).status == statuses.ACCEPT
    assert verify(pb.RequestVerifyVoteExtension(vote_extension=b"x")).status == statuses.REJECT
