"""When a round's phase ends and what comes next. Runs at the end of a block, for jobs that `DUE_JOBS` names.

    train -> commit -> reveal -> [score] -> aggregate -> settled
                 any of them -> void

A phase ends when the block's height is above its deadline, or as soon as all who are waited for have acted. Train and
commit are one span for whoever commits: its end is fixed when the round opens, unless everybody has committed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from abci_app import tables
from abci_app.block import BlockContext, Event
from abci_app.ledger import params_of
from abci_app.messages import Phase
from abci_app.records import Job, Round
from abci_app.rules.jobs import active_members, job_of, look_at, open_round_of, put_job
from abci_app.rules.rounds import commit_deadline, score_sheets_of, submissions_of
from abci_app.rules.settling import round_event, settle_round, void_round
from abci_app.rules.tally import Value, has_quorum, is_hopeless, scored_out, scorer_stakes, take_votes
from abci_app.state import Branch

MAX_LOOKED_AT_PER_BLOCK: Final = 2_000
"""Jobs that are due and workers of their rounds, counted together, that the end of one block looks at: many jobs made
to be due at one height cannot stop the chain. About a quarter of a second at the most."""


@dataclass(frozen=True, slots=True)
class Move:
    """Go on to `phase` until `deadline`; `included` is set when the frozen set becomes known."""

    phase: Phase
    deadline: int
    included: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Void:
    reason: str
    winner: Value | None = None


@dataclass(frozen=True, slots=True)
class Settle:
    winner: Value


Step = Move | Void | Settle | None
"""What to do with a round now; None: wait."""


def advance_jobs(branch: Branch, block: BlockContext) -> list[Event]:
    """End of block: move the jobs that are due as far as they go, in the order of (height at which they were due, id).

    At most `MAX_LOOKED_AT_PER_BLOCK`; the rest comes first in the next block. Messages go by the deadlines of the
    phases all the same, and whatever follows a phase that ends late gets its full time.
    """
    events: list[Event] = []
    for job_id in _take_due_jobs(branch, block):
        events.extend(_advance_job(branch, job_id, block))
    return events


def _take_due_jobs(branch: Branch, block: BlockContext) -> list[int]:
    """The jobs to look at in this block, each once; they are due no more."""
    due: dict[int, None] = {}
    left = MAX_LOOKED_AT_PER_BLOCK
    for key, _ in tables.DUE_JOBS.iterate(branch):
        height, job_id = _split_key(key)
        if height > block.height or (left <= 0 and job_id not in due):
            break
        if job_id not in due:
            due[job_id] = None
            round_ = open_round_of(branch, job_of(branch, job_id))
            left -= 1 + len(round_.expected if round_ else ())
        tables.DUE_JOBS.delete(branch, height, job_id)
    return list(due)


def _split_key(key: bytes) -> tuple[int, int]:
    parts = key[len(tables.DUE_JOBS.prefix) :]
    return int.from_bytes(parts[:8], "big"), int.from_bytes(parts[8:], "big")


def _advance_job(branch: Branch, job_id: int, block: BlockContext) -> list[Event]:
    """Each pass ends a phase or the round, so there are at most as many as there are phases."""
    events: list[Event] = []
    while True:
        job = job_of(branch, job_id)
        round_ = open_round_of(branch, job)
        if round_ is None:
            return events + _open_round(branch, job, block)
        step = _next_step(branch, job, round_, block)
        if step is None:
            return events
        events.extend(_take(branch, job, round_, step, block))


def _take(branch: Branch, job: Job, round_: Round, step: Move | Void | Settle, block: BlockContext) -> list[Event]:
    if isinstance(step, Void):
        return void_round(branch, job, round_, block, reason=step.reason, winner=step.winner)
    if isinstance(step, Settle):
        return settle_round(branch, job, round_, block, step.winner)
    moved = replace(round_, phase=step.phase, deadline=step.deadline, included=step.included)
    tables.ROUNDS.put(branch, moved, job.id, round_.index)
    look_at(branch, job.id, step.deadline + 1)
    return [round_event(moved)]


def _open_round(branch: Branch, job: Job, block: BlockContext) -> list[Event]:
    expected = tuple(active_members(branch, job.id))
    if job.status != "open" or len(expected) < job.terms.min_workers:
        return []
    round_ = Round(
        job_id=job.id,
        index=job.next_round,
        status="open",
        phase="train",
        opened_height=block.height,
        deadline=block.height + job.terms.train_blocks,
        base_round=job.settled_round,
        base_root=job.state_root,
        expected=expected,
    )
    tables.ROUNDS.put(branch, round_, job.id, round_.index)
    put_job(branch, replace(job, open_round=round_.index))
    look_at(branch, job.id, round_.deadline + 1)
    return [round_event(round_)]


# --- one function per phase ---------------------------------------------------------------------------------------
def _next_step(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Step:
    if round_.phase in ("train", "commit"):
        return _after_commits(branch, job, round_, block)
    if round_.phase == "reveal":
        return _after_reveals(branch, job, round_, block)
    if round_.phase == "score":
        return _after_scores(branch, job, round_, block)
    return _after_attestations(branch, job, round_, block)


def _after_commits(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Step:
    num_committed = len(submissions_of(branch, round_))
    last = commit_deadline(job, round_)
    if num_committed < len(round_.expected) and block.height <= last:
        if round_.phase == "train" and block.height > round_.deadline:
            return Move("commit", last)
        return None
    if num_committed < job.terms.min_workers:
        return Void("too_few_commits")
    return Move("reveal", block.height + job.terms.reveal_blocks)


def _after_reveals(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Step:
    submissions = submissions_of(branch, round_)
    revealed = [submission.worker for submission in submissions if submission.blob]
    if len(revealed) < len(submissions) and block.height <= round_.deadline:
        return None
    if len(revealed) < job.terms.min_workers:
        return Void("too_few_reveals")
    if job.terms.scorers:
        return Move("score", block.height + job.terms.score_blocks)
    return _to_aggregate(job, block, revealed)


def _after_scores(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Step:
    stakes = scorer_stakes(branch, job)
    if not stakes:
        return Void("no_scorers")
    sheets = [s for s in score_sheets_of(branch, round_) if s.scores and s.scorer in stakes]
    if len(sheets) < len(stakes) and block.height <= round_.deadline:
        return None
    out = scored_out(sheets, stakes)
    included = [s.worker for s in submissions_of(branch, round_) if s.blob and s.worker not in out]
    if len(included) < job.terms.min_workers:
        return Void("too_few_included")
    return _to_aggregate(job, block, included)


def _to_aggregate(job: Job, block: BlockContext, included: Sequence[bytes]) -> Move:
    return Move("aggregate", block.height + job.terms.aggregate_blocks, tuple(included))


def _after_attestations(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Step:
    stakes = scorer_stakes(branch, job)
    if job.terms.scorers and not stakes:
        return Void("no_scorers")
    votes = take_votes(round_.included, submissions_of(branch, round_), stakes, score_sheets_of(branch, round_))
    over = block.height > round_.deadline or votes.is_complete
    quorum_ppm = params_of(branch).attest_quorum_ppm
    winner = next((value for value in votes.values if has_quorum(votes, value, quorum_ppm)), None)
    if winner is None:
        return Void("no_quorum") if over or is_hopeless(votes, quorum_ppm) else None
    if not over:
        return None
    if len(round_.included) - len(winner.rejected) < job.terms.min_workers:
        return Void("too_few_usable", winner)
    return Settle(winner)
