"""Truth table of how rounds end: who is paid, slashed, dropped, and why a round is void."""

import pytest

from abci_app.records import Verdict
from primitives.amounts import slash_amount
from tests.abci_app.rules.chain import TOKEN, Chain, address
from tests.abci_app.rules.rounds_kit import (
    OTHER_ROOT,
    REWARD,
    ROOT,
    all_ok,
    at_aggregate,
    attest,
    blob_of,
    commit_all,
    pass_deadline,
    reveal_all,
    started,
)

FOUR = ("w0", "w1", "w2", "w3")


def verdicts(chain: Chain, index: int = 0) -> dict[bytes, Verdict]:
    settlement = chain.settlement(index)
    assert settlement is not None
    return {outcome.worker: outcome.verdict for outcome in settlement.outcomes}


def attest_all(chain: Chain, *workers: str) -> None:
    all_ok(chain, *[chain.tx(w, attest()) for w in workers])


def test_round_that_goes_well_pays_everybody_alike() -> None:
    chain = at_aggregate(*FOUR)
    before = {w: chain.balance(w) for w in FOUR}
    fee = 2 * 200
    attest_all(chain, *FOUR)
    settlement = chain.settlement(0)
    assert settlement is not None
    assert settlement.state_root == ROOT
    assert settlement.total_paid == REWARD
    assert settlement.blobs == tuple(sorted((address(w), blob_of(chain, w, 0)) for w in FOUR))
    for w in FOUR:
        assert chain.balance(w) == before[w] - fee + REWARD // 4
        assert chain.member(w).earned == REWARD // 4
    job = chain.job()
    assert (job.state_root, job.settled_round, job.settled_rounds, job.escrow) == (ROOT, 0, 1, 2 * REWARD)
    assert (chain.round(0).status, chain.round(0).closed_height) == ("settled", chain.height)
    assert (job.open_round, chain.round(1).base_round, chain.round(1).base_root) == (1, 0, ROOT)


def test_remainder_of_an_uneven_split_stays_in_the_escrow() -> None:
    chain = at_aggregate("w0", "w1", "w2", reward_per_round=100)
    attest_all(chain, "w0", "w1", "w2")
    settlement = chain.settlement(0)
    assert settlement is not None
    assert settlement.total_paid == 99
    assert chain.job().escrow == 201


def test_worker_that_never_commits_is_absent_and_not_paid() -> None:
    chain = started(*FOUR)
    commit_all(chain, "w0", "w1", "w2")
    chain.skip_to(chain.round(0).opened_height + 5 + 3 + 1)
    reveal_all(chain, "w0", "w1", "w2")
    attest_all(chain, "w0", "w1", "w2")
    assert verdicts(chain) == {address(w): "paid" for w in FOUR[:3]} | {address("w3"): "absent"}
    assert chain.member("w3").missed == 1
    assert chain.worker("w3").bond == 10 * TOKEN


def test_worker_that_commits_and_never_reveals_is_slashed() -> None:
    chain = started(*FOUR)
    commit_all(chain, *FOUR)
    reveal_all(chain, "w0", "w1", "w2")
    assert chain.round(0).phase == "reveal"
    burned = chain.burned
    pass_deadline(chain)
    fees = sum(200 + 200 + 0 for _ in range(3))
    attest_all(chain, "w0", "w1", "w2")
    assert verdicts(chain)[address("w3")] == "no_reveal"
    slash = slash_amount(10 * TOKEN, chain.params.slash_no_reveal_ppm)
    assert chain.worker("w3").bond == 10 * TOKEN - slash
    assert chain.burned == burned + slash + fees
    assert chain.member("w3").missed == 1


def test_worker_whose_blob_is_unusable_is_rejected_and_its_pay_goes_to_the_others() -> None:
    chain = at_aggregate(*FOUR)
    all_ok(chain, *[chain.tx(w, attest(rejected=["w3"])) for w in FOUR])
    assert verdicts(chain) == {address(w): "paid" for w in FOUR[:3]} | {address("w3"): "rejected"}
    assert chain.member("w0").earned == REWARD // 3
    assert chain.member("w3").earned == 0
    assert chain.member("w3").missed == 1


def test_worker_that_attests_another_state_is_not_paid() -> None:
    chain = at_aggregate(*FOUR)
    all_ok(chain, *[chain.tx(w, attest()) for w in FOUR[:3]], chain.tx("w3", attest(root=OTHER_ROOT)))
    assert verdicts(chain) == {address(w): "paid" for w in FOUR[:3]} | {address("w3"): "disagreed"}
    assert chain.member("w3").missed == 0


def test_worker_that_attests_the_right_root_but_rejects_another_worker_disagrees() -> None:
    chain = at_aggregate(*FOUR)
    all_ok(chain, *[chain.tx(w, attest()) for w in FOUR[:3]], chain.tx("w3", attest(rejected=["w0"])))
    assert verdicts(chain)[address("w3")] == "disagreed"
    assert verdicts(chain)[address("w0")] == "paid"


def test_included_worker_that_does_not_attest_is_paid_at_the_deadline() -> None:
    chain = at_aggregate(*FOUR)
    attest_all(chain, "w0", "w1", "w2")
    assert chain.settlement(0) is None, "the round must not end before everybody had the chance to attest"
    pass_deadline(chain)
    assert verdicts(chain) == {address(w): "paid" for w in FOUR}


def test_settled_round_resets_misses() -> None:
    chain = started(*FOUR)
    commit_all(chain, "w0", "w1", "w2")
    chain.skip_to(chain.round(0).opened_height + 9)
    reveal_all(chain, "w0", "w1", "w2")
    attest_all(chain, "w0", "w1", "w2")
    assert chain.member("w3").missed == 1
    commit_all(chain, *FOUR, index=1)
    reveal_all(chain, *FOUR, index=1)
    all_ok(chain, *[chain.tx(w, attest(1)) for w in FOUR])
    assert chain.member("w3").missed == 0


# --- void ---------------------------------------------------------------------------------------------------------
def check_void(chain: Chain, reason: str) -> None:
    round_ = chain.round(0)
    assert (round_.status, round_.void_reason) == ("void", reason)
    job = chain.job()
    assert job.state_root == job.terms.genesis_root
    assert job.settled_rounds == 0
    assert job.next_round == 1 or job.open_round == 1
    assert job.escrow == 3 * REWARD
    assert chain.settlement(0) is None


def test_void_when_too_few_commit_and_nobody_is_slashed() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0")
    chain.skip_to(chain.round(0).opened_height + 9)
    check_void(chain, "too_few_commits")
    assert chain.worker("w0").bond == 10 * TOKEN
    assert (chain.member("w0").missed, chain.member("w1").missed) == (0, 1)


def test_void_when_too_few_reveal_and_those_who_withheld_are_slashed() -> None:
    chain = started("w0", "w1")
    commit_all(chain, "w0", "w1")
    reveal_all(chain, "w0")
    pass_deadline(chain)
    check_void(chain, "too_few_reveals")
    assert chain.worker("w0").bond == 10 * TOKEN
    assert chain.worker("w1").bond < 10 * TOKEN
    assert (chain.member("w0").missed, chain.member("w1").missed) == (0, 1)


def test_void_at_once_when_no_state_can_reach_the_quorum_any_more() -> None:
    chain = at_aggregate(*FOUR)
    halves = [chain.tx(w, attest()) for w in FOUR[:2]] + [chain.tx("w2", attest(root=OTHER_ROOT))]
    all_ok(chain, *halves)
    assert chain.round(0).status == "open", "w3 can still make it three of four"
    all_ok(chain, chain.tx("w3", attest(root=OTHER_ROOT)))
    check_void(chain, "no_quorum")


def test_void_when_the_quorum_is_missed_at_the_deadline() -> None:
    chain = at_aggregate(*FOUR)
    attest_all(chain, "w0", "w1")
    pass_deadline(chain)
    check_void(chain, "no_quorum")


def test_void_when_everybody_agrees_that_too_little_is_usable() -> None:
    chain = at_aggregate("w0", "w1", "w2")
    all_ok(chain, *[chain.tx(w, attest(rejected=["w1", "w2"])) for w in ("w0", "w1", "w2")])
    check_void(chain, "too_few_usable")
    assert [chain.member(w).missed for w in ("w0", "w1", "w2")] == [0, 1, 1]


def test_quorum_counts_senders_not_messages() -> None:
    chain = at_aggregate(*FOUR)
    attest_all(chain, "w0")
    assert chain.refused("w0", attest()) == 75
    pass_deadline(chain)
    check_void(chain, "no_quorum")


# --- the job around the rounds ------------------------------------------------------------------------------------
def run_round(chain: Chain, index: int, *workers: str) -> None:
    commit_all(chain, *workers, index=index)
    reveal_all(chain, *workers, index=index)
    all_ok(chain, *[chain.tx(w, attest(index)) for w in workers])


def test_job_is_done_after_its_rounds_and_returns_what_is_left() -> None:
    chain = started("w0", "w1", "w2", num_rounds=2, reward_per_round=100)
    run_round(chain, 0, "w0", "w1", "w2")
    before = chain.balance("alice")
    run_round(chain, 1, "w0", "w1", "w2")
    assert (chain.job().status, chain.job().escrow, chain.job().open_round) == ("done", 0, -1)
    assert chain.balance("alice") == before + 2
    assert [chain.worker(w).open_jobs for w in ("w0", "w1", "w2")] == [0, 0, 0]
    assert not chain.member("w0").active


def test_job_with_too_many_void_rounds_in_a_row_is_cancelled_and_refunded() -> None:
    chain = started("w0", "w1")
    before = chain.balance("alice")
    limit = chain.params.max_void_rounds
    for index in range(limit):
        assert chain.job().open_round == index
        commit_all(chain, "w0", "w1", index=index)
        reveal_all(chain, "w0", "w1", index=index)
        all_ok(chain, chain.tx("w0", attest(index)), chain.tx("w1", attest(index, root=OTHER_ROOT)))
    assert chain.job().status == "cancelled"
    assert chain.balance("alice") == before + 3 * REWARD
    assert chain.worker("w0").open_jobs == 0


def test_member_that_misses_too_many_rounds_is_no_longer_waited_for() -> None:
    chain = started(*FOUR)
    for index in range(2):
        commit_all(chain, *FOUR[:3], index=index)
        chain.skip_to(chain.round(index).opened_height + 9)
        reveal_all(chain, *FOUR[:3], index=index)
        all_ok(chain, *[chain.tx(w, attest(index)) for w in FOUR[:3]])
    assert not chain.member("w3").active
    assert chain.worker("w3").open_jobs == 0
    assert chain.round(2).expected == tuple(sorted(address(w) for w in FOUR[:3]))


@pytest.mark.parametrize("workers", [("w0",), ("w0", "w1")])
def test_a_few_workers_are_enough_when_the_job_says_so(workers: tuple[str, ...]) -> None:
    chain = at_aggregate(*workers, min_workers=1)
    attest_all(chain, *workers)
    assert chain.round(0).status == "settled"
