"""Many jobs due at one height: a block looks at so many, the next at the rest, and nobody's time gets shorter."""

import pytest

from abci_app import messages as m
from abci_app import tables
from abci_app.errors import PhaseOver, WrongPhase
from abci_app.rules import phases
from primitives.hashing import sha256
from tests.abci_app.rules.chain import TOKEN, Chain
from tests.abci_app.rules.rounds_kit import GENESIS_ROOT, commit, job_terms, publish, reveal

NUM_JOBS = 7
WORKERS = ("w0", "w1")
CAP = 2 * (1 + len(WORKERS))
"""Two jobs with both workers in a block."""


def jobs_due_together(monkeypatch: pytest.MonkeyPatch) -> Chain:
    """Jobs 1 to 7, all in round 0 with both workers and the same deadlines."""
    chain = Chain()
    jobs = [m.CreateJob(key=sha256(b"%d" % i), terms=job_terms(min_workers=1)) for i in range(NUM_JOBS)]
    chain.block(*[chain.tx("alice", job, nonce_ahead=i) for i, job in enumerate(jobs)])
    joins = [m.JoinJob(job_id=job_id, genesis_root=GENESIS_ROOT) for job_id in range(1, NUM_JOBS + 1)]
    chain.block(*[chain.tx(worker, m.RegisterWorker(bond=10 * TOKEN), *joins) for worker in WORKERS])
    assert {chain.round(0, job_id).deadline for job_id in range(1, NUM_JOBS + 1)} == {chain.height + 5}
    monkeypatch.setattr(phases, "MAX_LOOKED_AT_PER_BLOCK", CAP)
    return chain


def commit_to_all(chain: Chain, worker: str) -> None:
    messages = [commit(chain, worker, job_id=job_id) for job_id in range(1, NUM_JOBS + 1)]
    assert chain.block(chain.tx(worker, *messages))[0].code == 0


def phases_of(chain: Chain) -> list[str]:
    return [chain.round(0, job_id).phase for job_id in range(1, NUM_JOBS + 1)]


def test_jobs_go_on_two_in_a_block_in_the_order_in_which_they_were_due(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = jobs_due_together(monkeypatch)
    commit_to_all(chain, "w0")
    trained = chain.round(0).deadline
    chain.skip_to(trained + 3)
    assert phases_of(chain) == ["commit"] * 6 + ["train"], "the label turns late as well"
    turned: dict[int, int] = {}
    while len(turned) < NUM_JOBS:
        chain.block()
        for job_id in range(1, NUM_JOBS + 1):
            if chain.round(0, job_id).phase == "reveal":
                turned.setdefault(job_id, chain.height)
    first = trained + 3 + 1
    assert turned == {7: first, 1: first, 2: first + 1, 3: first + 1, 4: first + 2, 5: first + 2, 6: first + 3}
    for job_id, height in turned.items():
        assert chain.round(0, job_id).deadline == height + 4, "the next phase has its full length"


def test_whoever_waits_for_a_late_phase_has_all_its_time_and_whoever_was_late_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = jobs_due_together(monkeypatch)
    commit_to_all(chain, "w0")
    chain.skip_to(chain.round(0).opened_height + 5 + 3 + 1)
    last = 6
    assert chain.round(0, last).phase in ("train", "commit")
    assert chain.refused("w1", commit(chain, "w1", job_id=last)) == PhaseOver.code
    assert chain.refused("w0", reveal(chain, "w0", job_id=last)) == WrongPhase.code
    while chain.round(0, last).phase != "reveal":
        chain.block()
    chain.skip_to(chain.round(0, last).deadline - 1)
    opening = reveal(chain, "w0", job_id=last)
    chain.ok("w0", publish(chain, "w0", job_id=last), opening)
    while chain.round(0, last).phase == "reveal":
        chain.block()
    assert chain.round(0, last).phase == "aggregate"


def test_what_is_left_over_gets_less_until_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = jobs_due_together(monkeypatch)
    chain.skip_to(chain.height + 400)
    assert list(tables.DUE_JOBS.iterate(chain.state)) == []
    assert chain.worker("w0").open_jobs == chain.worker("w1").open_jobs == 0, "out of all jobs after two missed rounds"


def test_a_job_with_more_workers_than_the_cap_is_looked_at_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = jobs_due_together(monkeypatch)
    monkeypatch.setattr(phases, "MAX_LOOKED_AT_PER_BLOCK", 1)
    chain.skip_to(chain.round(0).deadline + 1)
    assert phases_of(chain) == ["commit"] + ["train"] * 6


def test_a_job_that_was_due_earlier_comes_before_a_lower_number_that_is_due_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = jobs_due_together(monkeypatch)
    chain.skip_to(chain.round(0).deadline + 1)
    assert phases_of(chain) == ["commit"] * 2 + ["train"] * 5
    chain.ok("w0", commit(chain, "w0", job_id=1))
    assert phases_of(chain) == ["commit"] * 4 + ["train"] * 3
    assert chain.round(0, 1).phase == "commit"
