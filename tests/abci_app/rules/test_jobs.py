"""Jobs: creation, joining, leaving, cancelling."""

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.ledger import counters_of
from abci_app.params import Params
from primitives.encoding import decode
from primitives.hashing import sha256
from tests.abci_app.rules.chain import START_BALANCE, TOKEN, Chain, address, make_genesis
from tests.abci_app.rules.rounds_kit import (
    GENESIS_ROOT,
    REWARD,
    all_ok,
    at_aggregate,
    attest,
    commit_all,
    create_job,
    job_terms,
    join,
    pass_deadline,
    reveal_all,
    started,
)

CREATE = m.CreateJob(key=sha256(b"job"), terms=job_terms())
JOIN = m.JoinJob(job_id=1, genesis_root=GENESIS_ROOT)
REGISTER = m.RegisterWorker(bond=10 * TOKEN)


# --- create -------------------------------------------------------------------------------------------------------
def test_a_job_whose_blobs_could_not_last_to_the_end_of_a_round_is_refused() -> None:
    """Its workers could commit and never reveal, and would be slashed for it."""
    chain = Chain(make_genesis(Params(max_blob_lifetime=40)))
    too_long = job_terms(reveal_blocks=10, score_blocks=15, aggregate_blocks=15)
    assert chain.refused("alice", m.CreateJob(key=sha256(b"job"), terms=too_long)) == 94
    chain = started("w0", "w1", chain=chain, reveal_blocks=10, score_blocks=15, aggregate_blocks=14)
    commit_all(chain, "w0", "w1")
    reveal_all(chain, "w0", "w1")
    assert chain.round(0).phase == "aggregate"


def test_job_sets_its_whole_reward_aside() -> None:
    chain = Chain()
    receipt = chain.ok("alice", CREATE)
    assert decode(receipt.data, list[int]) == [1]
    assert chain.job().escrow == 3 * REWARD
    assert chain.balance("alice") == START_BALANCE - 3 * REWARD - receipt.work_used
    assert (chain.job().status, chain.job().open_round, chain.job().state_root) == ("open", -1, GENESIS_ROOT)


def test_same_job_sent_again_is_the_same_job_and_costs_only_the_fee() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    before = chain.balance("alice")
    receipt = chain.ok("alice", CREATE)
    assert decode(receipt.data, list[int]) == [1]
    assert chain.balance("alice") == before - receipt.work_used
    assert counters_of(chain.state).next_job == 2


def test_key_used_for_other_terms_is_refused() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    assert chain.refused("alice", replace(CREATE, terms=job_terms(num_rounds=4))) == 79


def test_key_belongs_to_its_owner() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    assert decode(chain.ok("bob", CREATE).data, list[int]) == [2]


def test_job_that_the_owner_cannot_pay_is_refused() -> None:
    chain = Chain()
    assert chain.refused("alice", replace(CREATE, terms=job_terms(reward_per_round=START_BALANCE))) == 22
    huge = job_terms(reward_per_round=2**63 - 1, num_rounds=1_000_000)
    assert chain.refused("alice", replace(CREATE, terms=huge)) == 22


def test_scorers_must_be_validators() -> None:
    chain = Chain()
    assert chain.refused("alice", replace(CREATE, terms=job_terms(scorers=(address("bob"),)))) == 40


# --- join and leave -----------------------------------------------------------------------------------------------
def test_round_opens_when_enough_workers_have_joined() -> None:
    chain = Chain()
    create_job(chain)
    join(chain, "w0")
    assert chain.job().open_round == -1
    join(chain, "w1")
    round_ = chain.round(0)
    assert round_.expected == tuple(sorted((address("w0"), address("w1"))))
    assert (round_.phase, round_.opened_height, round_.deadline) == ("train", chain.height, chain.height + 5)
    assert (round_.base_round, round_.base_root) == (-1, GENESIS_ROOT)
    assert [event.attributes["phase"] for event in chain.events if event.kind == "round"] == ["train"]


def test_worker_that_joins_during_a_round_takes_part_in_the_next() -> None:
    chain = started("w0", "w1")
    join(chain, "w2")
    assert address("w2") not in chain.round(0).expected
    commit_all(chain, "w0", "w1")
    reveal_all(chain, "w0", "w1")
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    assert address("w2") in chain.round(1).expected


def test_joining_is_checked() -> None:
    chain = Chain()
    assert chain.refused("w0", JOIN) == 60
    create_job(chain)
    assert chain.refused("w0", JOIN) == 50
    chain.ok("w0", REGISTER)
    assert chain.refused("w0", replace(JOIN, genesis_root=sha256(b"other"))) == 66
    chain.ok("w0", JOIN)
    assert chain.refused("w0", JOIN) == 63


def test_job_takes_exactly_max_workers() -> None:
    chain = Chain()
    create_job(chain, max_workers=2, min_workers=2)
    join(chain, "w0", "w1")
    chain.ok("w2", REGISTER)
    assert chain.refused("w2", JOIN) == 65
    chain.ok("w0", m.LeaveJob(job_id=1))
    chain.ok("w2", JOIN)


def test_worker_slashed_below_the_minimum_fills_its_bond_up_before_it_joins() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1", "w2")
    reveal_all(chain, "w0", "w1")
    pass_deadline(chain)
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    bond = chain.worker("w2").bond
    assert bond < 10 * TOKEN
    create_job(chain, key_text="second")
    assert chain.refused("w2", replace(JOIN, job_id=2)) == 43
    assert chain.refused("w2", m.RegisterWorker(bond=10 * TOKEN - bond - 1)) == 43
    chain.ok("w2", m.RegisterWorker(bond=10 * TOKEN - bond), replace(JOIN, job_id=2))


def test_leaving_needs_membership() -> None:
    chain = Chain()
    assert chain.refused("w0", m.LeaveJob(job_id=1)) == 60
    create_job(chain)
    assert chain.refused("w0", m.LeaveJob(job_id=1)) == 64
    join(chain, "w0")
    chain.ok("w0", m.LeaveJob(job_id=1))
    assert chain.refused("w0", m.LeaveJob(job_id=1)) == 64


def test_bond_is_locked_while_a_job_is_open() -> None:
    chain = Chain()
    create_job(chain)
    join(chain, "w0")
    assert chain.refused("w0", m.RetireWorker()) == 45
    chain.ok("w0", m.LeaveJob(job_id=1))
    chain.ok("w0", m.RetireWorker())


def test_leaving_in_mid_round_does_not_free_the_bond_before_the_round_is_over() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1", "w2")
    chain.ok("w2", m.LeaveJob(job_id=1))
    assert chain.refused("w2", m.RetireWorker()) == 45
    reveal_all(chain, "w0", "w1")
    pass_deadline(chain)
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    assert chain.worker("w2").bond < 10 * TOKEN, "slashed although it had left"
    assert address("w2") not in chain.round(1).expected
    chain.ok("w2", m.RetireWorker())


def test_worker_that_leaves_and_joins_again_in_one_round_is_counted_once() -> None:
    chain = started("w0", "w1")
    chain.ok("w1", m.LeaveJob(job_id=1), JOIN)
    assert chain.worker("w1").open_jobs == 1
    commit_all(chain, "w0", "w1")
    reveal_all(chain, "w0", "w1")
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    assert chain.worker("w1").open_jobs == 1
    chain.ok("alice", m.CancelJob(job_id=1))
    chain.skip_to(chain.round(1).opened_height + 9)
    assert chain.worker("w1").open_jobs == 0


def test_job_waits_when_too_few_members_are_left() -> None:
    chain = at_aggregate("w0", "w1")
    chain.ok("w1", m.LeaveJob(job_id=1))
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    assert chain.job().open_round == -1
    join_again = chain.tx("w1", JOIN)
    all_ok(chain, join_again)
    assert chain.job().open_round == 1


# --- cancel -------------------------------------------------------------------------------------------------------
def test_waiting_job_is_cancelled_at_once_and_refunded() -> None:
    chain = Chain()
    create_job(chain)
    before = chain.balance("alice")
    join(chain, "w0")
    receipt = chain.ok("alice", m.CancelJob(job_id=1))
    assert (chain.job().status, chain.job().escrow) == ("cancelled", 0)
    assert chain.balance("alice") == before + 3 * REWARD - receipt.work_used
    assert chain.worker("w0").open_jobs == 0
    assert chain.refused("alice", m.CancelJob(job_id=1)) == 61
    assert chain.refused("w1", REGISTER, JOIN) == 61


def test_running_round_still_settles_after_the_owner_cancels() -> None:
    chain = at_aggregate("w0", "w1")
    chain.ok("alice", m.CancelJob(job_id=1))
    assert chain.job().status == "closing"
    assert chain.refused("alice", m.CancelJob(job_id=1)) == 61
    before = chain.balance("alice")
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    assert chain.round(0).status == "settled"
    assert (chain.job().status, chain.job().open_round) == ("cancelled", -1)
    assert chain.member("w0").earned == REWARD // 2
    assert chain.balance("alice") == before + 2 * REWARD


def test_cancelled_job_ends_with_a_void_round_too() -> None:
    chain = started("w0", "w1")
    chain.ok("alice", m.CancelJob(job_id=1))
    chain.skip_to(chain.round(0).opened_height + 9)
    assert chain.round(0).status == "void"
    assert chain.job().status == "cancelled"
    assert list(tables.OPEN_JOBS.iterate(chain.state)) == []


def test_only_the_owner_cancels() -> None:
    chain = Chain()
    assert chain.refused("bob", m.CancelJob(job_id=1)) == 60
    create_job(chain)
    assert chain.refused("bob", m.CancelJob(job_id=1)) == 62


@pytest.mark.parametrize("index", [1, 2**63 - 1])
def test_messages_to_a_finished_job_are_refused(index: int) -> None:
    chain = Chain()
    create_job(chain)
    chain.ok("alice", m.CancelJob(job_id=1))
    commit = m.CommitUpdate(job_id=1, round_index=index, commitment=sha256(b""))
    assert chain.refused("w0", commit) == 67
