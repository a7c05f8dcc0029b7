"""How a round ends: who is paid, who is slashed, what the job's state becomes.

The quorum decides for everybody: whoever attested another value than the winning one is not paid; whoever delivered and
did not attest is. What an equal split leaves over stays in the escrow and goes back to the owner when the job ends.
"""

from msgspec.structs import replace

from abci_app import tables
from abci_app.block import BlockContext, Event
from abci_app.ledger import credit, params_of
from abci_app.records import Job, Round, Settlement, Submission, Verdict, WorkerOutcome
from abci_app.rules.jobs import NO_ROUND, end_job, finish_member, put_job
from abci_app.rules.rounds import submissions_of
from abci_app.rules.tally import Value
from abci_app.rules.workers import slash_worker
from abci_app.state import Branch

FAULTS: frozenset[Verdict] = frozenset({"absent", "no_reveal", "rejected"})
"""Verdicts that count as a missed round: nothing usable was delivered."""


def settle_round(branch: Branch, job: Job, round_: Round, block: BlockContext, winner: Value) -> list[Event]:
    """Pay, slash, write the settlement and the job's new state; end the job if this was its last round."""
    submissions = {s.worker: s for s in submissions_of(branch, round_)}
    verdicts = {w: _verdict(round_, w, submissions.get(w), winner) for w in round_.expected}
    num_paid = sum(verdict == "paid" for verdict in verdicts.values())
    each = job.terms.reward_per_round // num_paid if num_paid else 0
    outcomes = tuple(
        _finish(branch, round_, worker, verdict, submissions.get(worker), pay=each)
        for worker, verdict in verdicts.items()
    )
    settlement = Settlement(
        job_id=job.id,
        round_index=round_.index,
        height=block.height,
        state_root=winner.state_root,
        blobs=tuple((worker, submissions[worker].blob) for worker in round_.included),
        outcomes=outcomes,
        total_paid=each * num_paid,
    )
    tables.SETTLEMENTS.put(branch, settlement, job.id, round_.index)
    settled = replace(
        job,
        escrow=job.escrow - settlement.total_paid,
        settled_rounds=job.settled_rounds + 1,
        settled_round=round_.index,
        state_root=winner.state_root,
        void_rounds=0,
    )
    event = Event("settlement", {"job_id": str(job.id), "round_index": str(round_.index)})
    return [_close(branch, settled, replace(round_, status="settled"), block), event]


def void_round(
    branch: Branch, job: Job, round_: Round, block: BlockContext, *, reason: str, winner: Value | None
) -> list[Event]:
    """Model unchanged, nobody paid; misses count and withheld reveals are slashed all the same.

    `winner` is given where a quorum agreed and yet too little was usable.
    """
    submissions = {s.worker: s for s in submissions_of(branch, round_)}
    for worker in round_.expected:
        verdict = _verdict(round_, worker, submissions.get(worker), winner)
        _finish(branch, round_, worker, verdict, submissions.get(worker), pay=0)
    voided = replace(job, void_rounds=job.void_rounds + 1)
    return [_close(branch, voided, replace(round_, status="void", void_reason=reason), block)]


def round_event(round_: Round) -> Event:
    attributes = {
        "job_id": str(round_.job_id),
        "round_index": str(round_.index),
        "phase": round_.phase,
        "status": round_.status,
    }
    return Event("round", attributes)


def _verdict(round_: Round, worker: bytes, submission: Submission | None, winner: Value | None) -> Verdict:
    """What the round meant for one expected worker; "paid" where nothing speaks against it."""
    if submission is None:
        return "absent"
    if not submission.blob:
        return "paid" if round_.phase in ("train", "commit") else "no_reveal"
    if winner is None:
        return "paid"
    if worker not in round_.included:
        return "scored_out"
    if worker in winner.rejected:
        return "rejected"
    attested_another = submission.state_root and Value(submission.state_root, submission.rejected) != winner
    return "disagreed" if attested_another else "paid"


def _finish(
    branch: Branch, round_: Round, worker: bytes, verdict: Verdict, submission: Submission | None, *, pay: int
) -> WorkerOutcome:
    """Apply one verdict."""
    paid = pay if verdict == "paid" else 0
    credit(branch, worker, paid)
    slashed = slash_worker(branch, worker) if verdict == "no_reveal" else 0
    finish_member(branch, round_.job_id, worker, missed=verdict in FAULTS, paid=paid)
    return WorkerOutcome(
        worker=worker,
        verdict=verdict,
        paid=paid,
        slashed=slashed,
        payload_bytes=submission.payload_bytes if submission else 0,
        loss_micro=submission.loss_micro if submission else 0,
    )


def _close(branch: Branch, job: Job, round_: Round, block: BlockContext) -> Event:
    """Write the closed round, free the job for the next one, and end the job where its time has come."""
    closed = replace(round_, closed_height=block.height)
    tables.ROUNDS.put(branch, closed, job.id, closed.index)
    free = replace(job, open_round=NO_ROUND, next_round=closed.index + 1)
    put_job(branch, free)
    if free.settled_rounds == free.terms.num_rounds:
        end_job(branch, free, "done")
    elif free.status == "closing" or free.void_rounds >= params_of(branch).max_void_rounds:
        end_job(branch, free, "cancelled")
    return round_event(closed)
