"""Commit, reveal, score, attest: who may say what, until which height, and how phases end."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app.rules.rounds import commit_deadline, needed_expiry, round_namespace
from abci_app.transactions import update_commitment
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, VALIDATORS, Chain, address, double_sign
from tests.abci_app.rules.rounds_kit import (
    OTHER_ROOT,
    SALT,
    all_ok,
    at_aggregate,
    attest,
    blob_of,
    certify,
    commit,
    commit_all,
    content_of,
    pass_deadline,
    promise_for,
    publish,
    reveal,
    reveal_all,
    score,
    started,
)

Make = Callable[[], Chain]
SCORERS = tuple(sorted(address(v) for v in VALIDATORS[:3]))


def at_reveal() -> Chain:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1", "w2")
    assert chain.round(0).phase == "reveal"
    return chain


def at_score(*workers: str) -> Chain:
    workers = workers or ("w0", "w1", "w2")
    chain = started(*workers, scorers=SCORERS)
    commit_all(chain, *workers)
    reveal_all(chain, *workers)
    assert chain.round(0).phase == "score"
    return chain


# --- one boundary rule: valid iff height <= deadline; the phase ends iff height > deadline -------------------------
@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 80)])
def test_commit_counts_until_the_deadline_fixed_at_opening(offset: int, code: int) -> None:
    chain = started("w0", "w1")
    last = commit_deadline(chain.job(), chain.round(0))
    assert last == chain.round(0).opened_height + 5 + 3
    chain.skip_to(last + offset - 1)
    assert chain.send("w0", commit(chain, "w0")).code == code


@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 80)])
def test_reveal_counts_until_its_deadline(offset: int, code: int) -> None:
    chain = at_reveal()
    deadline = chain.round(0).deadline
    assert deadline == chain.height + 4
    chain.skip_to(deadline + offset - 1)
    assert chain.send("w0", publish(chain, "w0"), reveal(chain, "w0")).code == code


@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 80)])
def test_scores_count_until_their_deadline(offset: int, code: int) -> None:
    chain = at_score()
    chain.skip_to(chain.round(0).deadline + offset - 1)
    assert chain.send("v0", score(w0=1, w1=1, w2=1)).code == code


@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 80)])
def test_attestations_count_until_their_deadline(offset: int, code: int) -> None:
    chain = at_aggregate("w0", "w1")
    chain.skip_to(chain.round(0).deadline + offset - 1)
    assert chain.send("w0", attest()).code == code


def at_commit() -> Chain:
    chain = started("w0", "w1")
    pass_deadline(chain)
    assert chain.round(0).phase == "commit"
    return chain


@pytest.mark.parametrize("make", [at_commit, at_reveal, at_score, lambda: at_aggregate("w0", "w1")])
def test_phase_lasts_through_its_deadline_and_ends_right_after(make: Make) -> None:
    chain = make()
    phase, deadline = chain.round(0).phase, chain.round(0).deadline
    chain.skip_to(deadline)
    assert (chain.round(0).phase, chain.round(0).status) == (phase, "open")
    chain.skip_to(deadline + 1)
    assert (chain.round(0).phase, chain.round(0).status) != (phase, "open")


def test_commit_in_the_last_block_does_not_end_the_phase_before_its_time() -> None:
    chain = started("w0", "w1", "w2")
    last = commit_deadline(chain.job(), chain.round(0))
    chain.skip_to(last - 1)
    all_ok(chain, *[chain.tx(w, commit(chain, w)) for w in ("w0", "w1")])
    assert (chain.height, chain.round(0).phase) == (last, "commit")
    chain.block()
    assert chain.round(0).phase == "reveal"


def test_label_turns_to_commit_when_the_training_time_is_over() -> None:
    chain = started("w0", "w1")
    opened = chain.round(0).opened_height
    chain.skip_to(opened + 5)
    assert (chain.round(0).phase, chain.round(0).deadline) == ("train", opened + 5)
    chain.ok("w0", commit(chain, "w0"))
    assert (chain.round(0).phase, chain.round(0).deadline) == ("commit", opened + 8)
    chain.ok("w1", commit(chain, "w1"))
    assert chain.round(0).phase == "reveal"


# --- phases end early only when everybody has acted -----------------------------------------------------------------
def test_early_committers_cannot_shorten_the_time_of_others() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1")
    assert chain.round(0).phase == "train"
    chain.skip_to(commit_deadline(chain.job(), chain.round(0)) - 1)
    chain.ok("w2", commit(chain, "w2"))
    assert chain.round(0).phase == "reveal"


def test_reveal_ends_early_when_all_who_committed_have_revealed() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1")
    chain.skip_to(commit_deadline(chain.job(), chain.round(0)) + 1)
    all_ok(chain, chain.tx("w0", publish(chain, "w0"), reveal(chain, "w0")))
    assert chain.round(0).phase == "reveal"
    all_ok(chain, chain.tx("w1", publish(chain, "w1"), reveal(chain, "w1")))
    assert chain.round(0).phase == "aggregate"
    assert chain.round(0).included == tuple(sorted((address("w0"), address("w1"))))
    assert chain.round(0).deadline == chain.height + 4


# --- commit -------------------------------------------------------------------------------------------------------
def test_commit_is_checked() -> None:
    chain = started("w0", "w1", "w2")
    message = commit(chain, "w0")
    assert chain.refused("w0", replace(message, job_id=2)) == 60
    assert chain.refused("w0", replace(message, round_index=1)) == 67
    assert chain.refused("w0", replace(message, round_index=2**63 - 1)) == 67
    assert chain.refused("w3", message) == 69
    chain.ok("w0", message)
    assert chain.refused("w0", message) == 70


def test_commit_after_the_phase_is_refused() -> None:
    chain = at_reveal()
    assert chain.refused("w0", commit(chain, "w0")) == 68


# --- reveal -------------------------------------------------------------------------------------------------------
def test_reveal_before_the_phase_is_refused() -> None:
    chain = started("w0", "w1")
    chain.ok("w0", commit(chain, "w0"))
    assert chain.refused("w0", reveal(chain, "w0")) == 68


def test_reveal_without_commit_is_refused() -> None:
    chain = started("w0", "w1", "w2")
    commit_all(chain, "w0", "w1")
    chain.skip_to(commit_deadline(chain.job(), chain.round(0)) + 1)
    assert chain.refused("w2", reveal(chain, "w2")) == 71


@pytest.mark.parametrize(
    "change", [{"salt": bytes(32)}, {"samples": 11}, {"loss_micro": 1}, {"blob": bytes(32)}], ids=str
)
def test_reveal_of_other_values_than_committed_is_refused(change: dict[str, object]) -> None:
    chain = at_reveal()
    assert chain.refused("w0", publish(chain, "w0"), replace(reveal(chain, "w0"), **change)) == 72


def test_copied_commitment_cannot_be_opened_by_the_copier() -> None:
    chain = started("w0", "w1")
    stolen = commit(chain, "w0")
    all_ok(chain, chain.tx("w0", stolen), chain.tx("w1", stolen))
    assert chain.round(0).phase == "reveal", "the copy does not block its victim"
    copied = promise_for(chain, "w1", content_of("w0", 0), round_namespace(1, 0), expiry=100)
    assert chain.refused("w1", certify(copied), reveal(chain, "w0")) == 72
    chain.ok("w0", publish(chain, "w0"), reveal(chain, "w0"))


def test_reveal_of_a_blob_that_is_not_certified_is_refused() -> None:
    chain = at_reveal()
    assert chain.refused("w0", reveal(chain, "w0")) == 90


def test_reveal_in_the_same_transaction_as_the_certificate_works_only_in_that_order() -> None:
    chain = at_reveal()
    assert chain.refused("w0", reveal(chain, "w0"), publish(chain, "w0")) == 90
    chain.ok("w0", publish(chain, "w0"), reveal(chain, "w0"))
    submission = chain.submission("w0", 0)
    assert (submission.blob, submission.samples, submission.payload_bytes) == (blob_of(chain, "w0", 0), 10, 1000)


def test_blob_that_somebody_else_certified_is_not_ones_own_and_does_not_block_its_owner() -> None:
    chain = at_reveal()
    stolen = promise_for(chain, "w1", content_of("w0", 0), round_namespace(1, 0), expiry=100)
    chain.ok("w1", certify(stolen))
    assert chain.refused("w0", reveal(chain, "w0")) == 97
    chain.ok("w0", publish(chain, "w0"), reveal(chain, "w0"))


def test_blob_of_another_namespace_is_refused() -> None:
    chain = at_reveal()
    for namespace in ("job/1/round/1", "job/1/round/0/", "job/11/round/0", "checkpoints"):
        promise = promise_for(chain, "w0", content_of("w0", 0), namespace, expiry=100)
        assert chain.refused("w0", certify(promise), reveal(chain, "w0")) == 97


@pytest.mark.parametrize(("change", "code"), [(-1, 94), (0, 0), (1, 0)])
def test_blob_must_outlive_the_round(change: int, code: int) -> None:
    chain = at_reveal()
    lowest = needed_expiry(chain.job(), chain.round(0))
    message = publish(chain, "w0", expiry=lowest + change)
    assert chain.send("w0", message, reveal(chain, "w0")).code == code


def test_round_never_lasts_beyond_the_needed_expiry() -> None:
    chain = started("w0", "w1", "w2", scorers=SCORERS)
    commit_all(chain, "w0", "w1", "w2")
    lowest = needed_expiry(chain.job(), chain.round(0))
    chain.skip_to(chain.round(0).deadline - 1)
    reveal_all(chain, "w0", "w1")
    pass_deadline(chain)
    pass_deadline(chain)
    assert chain.round(0).phase == "aggregate"
    assert chain.round(0).deadline == lowest


def test_update_from_another_base_is_refused() -> None:
    chain = at_reveal()
    assert chain.refused("w0", publish(chain, "w0"), replace(reveal(chain, "w0"), base_round=0)) == 78


@pytest.mark.parametrize(("samples", "code"), [(1000, 72), (1001, 83), (2**40, 83)])
def test_samples_are_capped_by_the_job(samples: int, code: int) -> None:
    chain = at_reveal()
    assert chain.refused("w0", publish(chain, "w0"), replace(reveal(chain, "w0"), samples=samples)) == code


def test_zero_samples_are_malformed() -> None:
    chain = at_reveal()
    tx = chain.tx("w0", replace(reveal(chain, "w0"), samples=0))
    assert chain.block(tx)[0].code == 6


def test_revealing_twice_is_refused() -> None:
    chain = at_reveal()
    chain.ok("w0", publish(chain, "w0"), reveal(chain, "w0"))
    assert chain.refused("w0", reveal(chain, "w0")) == 73


def test_copier_who_reveals_first_does_not_keep_the_honest_worker_from_revealing() -> None:
    chain = started("w0", "w1")
    blob = blob_of(chain, "w0", 0)
    both = [
        m.CommitUpdate(1, 0, update_commitment(CHAIN_ID, 1, 0, address(w), blob, SALT, 10, 2_000_000))
        for w in ("w0", "w1")
    ]
    all_ok(chain, chain.tx("w0", both[0]), chain.tx("w1", both[1]))
    own = promise_for(chain, "w1", content_of("w0", 0), round_namespace(1, 0), expiry=100)
    chain.ok("w1", certify(own), reveal(chain, "w0"))
    chain.ok("w0", publish(chain, "w0"), reveal(chain, "w0"))


# --- score --------------------------------------------------------------------------------------------------------
def test_scoring_is_checked() -> None:
    chain = at_score()
    good = score(w0=1, w1=-1, w2=0)
    assert chain.refused("v3", good) == 76
    assert chain.refused("w0", good) == 76
    assert chain.refused("v0", score(w0=1, w1=1)) == 81
    assert chain.refused("v0", score(w0=1, w1=1, w2=1, w3=1)) == 81
    assert chain.refused("v0", score(w0=1, w1=1, w3=1)) == 81
    chain.ok("v0", good)
    assert chain.refused("v0", good) == 77


def test_score_out_of_phase_is_refused() -> None:
    chain = at_aggregate("w0", "w1")
    assert chain.refused("v0", score(w0=1, w1=1)) == 68


def test_jailed_scorer_is_neither_heard_nor_waited_for() -> None:
    chain = at_score()
    chain.block(evidence=[double_sign("v0")])
    assert chain.refused("v0", score(w0=1, w1=1, w2=1)) == 76
    all_ok(chain, *[chain.tx(v, score(w0=1, w1=1, w2=1)) for v in ("v1", "v2")])
    assert chain.round(0).phase == "aggregate"


def test_update_that_most_of_the_stake_finds_harmful_is_scored_out() -> None:
    chain = at_score()
    all_ok(
        chain,
        chain.tx("v0", score(w0=5, w1=-5, w2=-1)),
        chain.tx("v1", score(w0=5, w1=-1, w2=10)),
        chain.tx("v2", score(w0=-9, w1=900, w2=0)),
    )
    assert chain.round(0).phase == "aggregate"
    assert chain.round(0).included == tuple(sorted((address("w0"), address("w2"))))
    assert chain.refused("w1", attest()) == 69
    assert chain.refused("w0", attest(rejected=["w1"])) == 82
    all_ok(chain, *[chain.tx(name, attest()) for name in ("w0", "w2", "v0", "v1", "v2")])
    settlement = chain.settlement(0)
    assert settlement is not None
    assert {o.worker: o.verdict for o in settlement.outcomes}[address("w1")] == "scored_out"
    assert chain.member("w1").earned == 0


def test_even_split_of_the_scoring_stake_does_not_score_out() -> None:
    chain = at_score()
    all_ok(chain, chain.tx("v0", score(w0=-1, w1=1, w2=1)), chain.tx("v1", score(w0=1, w1=1, w2=1)))
    pass_deadline(chain)
    assert address("w0") in chain.round(0).included


def test_word_of_a_scorer_about_its_own_update_does_not_count() -> None:
    chain = Chain()
    chain.ok("v0", m.Bond(amount=500 * TOKEN))
    chain = started("v0", "w1", "w2", chain=chain, scorers=SCORERS)
    commit_all(chain, "v0", "w1", "w2")
    reveal_all(chain, "v0", "w1", "w2")
    all_ok(
        chain,
        chain.tx("v0", score(v0=10, w1=1, w2=1)),
        *[chain.tx(v, score(v0=-1, w1=1, w2=1)) for v in ("v1", "v2")],
    )
    assert chain.round(0).included == tuple(sorted((address("w1"), address("w2"))))


def test_stake_decides_over_heads() -> None:
    chain = Chain()
    chain.ok("v0", m.Bond(amount=101 * TOKEN))
    chain = started("w0", "w1", "w2", chain=chain, scorers=SCORERS)
    commit_all(chain, "w0", "w1", "w2")
    reveal_all(chain, "w0", "w1", "w2")
    all_ok(
        chain,
        chain.tx("v0", score(w0=-1, w1=1, w2=1)),
        *[chain.tx(v, score(w0=1, w1=1, w2=1)) for v in ("v1", "v2")],
    )
    assert address("w0") not in chain.round(0).included


def test_void_when_too_few_are_left_after_scoring() -> None:
    chain = at_score("w0", "w1")
    all_ok(chain, *[chain.tx(v, score(w0=1, w1=-1)) for v in VALIDATORS[:3]])
    assert (chain.round(0).status, chain.round(0).void_reason) == ("void", "too_few_included")


def test_void_when_no_scorer_is_an_active_validator() -> None:
    chain = at_score()
    chain.block(evidence=[double_sign(v) for v in VALIDATORS[:3]])
    pass_deadline(chain)
    assert (chain.round(0).status, chain.round(0).void_reason) == ("void", "no_scorers")


# --- attest -------------------------------------------------------------------------------------------------------
def test_attesting_is_checked() -> None:
    chain = at_aggregate("w0", "w1", "w2")
    assert chain.refused("w3", attest()) == 69
    assert chain.refused("v0", attest()) == 69
    assert chain.refused("w0", attest(rejected=["w3"])) == 82
    assert chain.refused("w0", attest(1)) == 67
    chain.ok("w0", attest())
    assert chain.refused("w0", attest(root=OTHER_ROOT)) == 75


def test_attestation_before_the_phase_is_refused() -> None:
    chain = at_reveal()
    assert chain.refused("w0", attest()) == 68


def at_aggregate_with_scorers() -> Chain:
    chain = at_score()
    all_ok(chain, *[chain.tx(v, score(w0=1, w1=1, w2=1)) for v in VALIDATORS[:3]])
    assert chain.round(0).phase == "aggregate"
    return chain


def test_scorers_must_agree_with_the_workers() -> None:
    chain = at_aggregate_with_scorers()
    all_ok(chain, *[chain.tx(w, attest()) for w in ("w0", "w1", "w2")])
    assert chain.round(0).status == "open"
    all_ok(chain, *[chain.tx(v, attest(root=OTHER_ROOT)) for v in VALIDATORS[:3]])
    assert (chain.round(0).status, chain.round(0).void_reason) == ("void", "no_quorum")


def test_round_settles_when_workers_and_scoring_stake_agree() -> None:
    chain = at_aggregate_with_scorers()
    all_ok(chain, *[chain.tx(name, attest()) for name in ("w0", "w1", "w2", "v0", "v1", "v2")])
    assert chain.round(0).status == "settled"


def test_scorer_attests_even_if_it_has_not_scored() -> None:
    chain = at_score()
    all_ok(chain, *[chain.tx(v, score(w0=1, w1=1, w2=1)) for v in ("v0", "v1")])
    pass_deadline(chain)
    all_ok(chain, *[chain.tx(name, attest()) for name in ("w0", "w1", "w2", "v0", "v1", "v2")])
    assert chain.round(0).status == "settled"
    assert chain.refused("v2", attest()) == 67


def test_round_with_scorers_is_void_when_they_are_silent() -> None:
    chain = at_aggregate_with_scorers()
    all_ok(chain, *[chain.tx(w, attest()) for w in ("w0", "w1", "w2")])
    pass_deadline(chain)
    assert (chain.round(0).status, chain.round(0).void_reason) == ("void", "no_quorum")


def test_one_account_that_is_worker_and_scorer_attests_for_both_at_once() -> None:
    chain = started("v0", "w1", scorers=(address("v0"),))
    commit_all(chain, "v0", "w1")
    reveal_all(chain, "v0", "w1")
    chain.ok("v0", score(v0=1, w1=1))
    all_ok(chain, chain.tx("v0", attest()), chain.tx("w1", attest()))
    assert chain.round(0).status == "settled"


def test_events_tell_each_phase_and_the_settlement() -> None:
    chain = at_aggregate("w0", "w1")
    all_ok(chain, chain.tx("w0", attest()), chain.tx("w1", attest()))
    told = [(e.kind, e.attributes.get("round_index"), e.attributes.get("status")) for e in chain.events]
    assert told == [("round", "0", "settled"), ("settlement", "0", None), ("round", "1", "open")]
