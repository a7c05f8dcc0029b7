"""What workers and scorers say in a round. When phases end stands in `abci_app.rules.phases`.

Every message names job and round, is bound to its sender, and counts iff height <= deadline of its phase.
"""

from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext
from abci_app.errors import (
    AlreadyAttested,
    AlreadyCommitted,
    AlreadyRevealed,
    AlreadyScored,
    BadBlobExpiry,
    BadRejection,
    BadScores,
    CommitmentMismatch,
    NotCommitted,
    NotExpected,
    NotPublisher,
    NotScorer,
    PhaseOver,
    TooManySamples,
    UnknownBlob,
    WrongBase,
    WrongPhase,
    WrongRound,
)
from abci_app.records import Blob, Job, Round, ScoreSheet, Submission
from abci_app.rules.blobs import blob_key
from abci_app.rules.effect import NOTHING_TO_TELL, Effect
from abci_app.rules.jobs import job_of, look_at, open_round_of
from abci_app.rules.validators import active_stake
from abci_app.state import Branch, ReadableState
from abci_app.transactions import update_commitment


def commit_update(branch: Branch, message: m.CommitUpdate, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, WrongRound, WrongPhase, PhaseOver, NotExpected, AlreadyCommitted."""
    job, round_ = _round_named(branch, message.job_id, message.round_index)
    if round_.phase not in ("train", "commit"):
        raise WrongPhase(got=round_.phase, want="commit")
    _need_in_time(block, commit_deadline(job, round_))
    if sender not in round_.expected:
        raise NotExpected("the sender takes no part in this round")
    if tables.SUBMISSIONS.get(branch, job.id, round_.index, sender) is not None:
        raise AlreadyCommitted("the sender has committed to this round already")
    submission = Submission(
        job_id=job.id,
        round_index=round_.index,
        worker=sender,
        commitment=message.commitment,
        commit_height=block.height,
    )
    _put_submission(branch, submission)
    look_at(branch, job.id, block.height)
    return NOTHING_TO_TELL


def reveal_update(branch: Branch, message: m.RevealUpdate, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, WrongRound, WrongPhase, PhaseOver, NotCommitted, AlreadyRevealed, WrongBase, TooManySamples,
    CommitmentMismatch, UnknownBlob, NotPublisher, BadBlobExpiry.

    A blob that another worker has revealed too is not refused: payloads name their worker, so the copy is rejected when
    the aggregate is computed, while a refusal would let a copier who is quicker have the honest worker slashed.
    """
    job, round_ = _round_named(branch, message.job_id, message.round_index)
    _need_phase(round_, "reveal", block)
    submission = tables.SUBMISSIONS.get(branch, job.id, round_.index, sender)
    if submission is None:
        raise NotCommitted("the sender has not committed to this round")
    if submission.blob:
        raise AlreadyRevealed("the sender has revealed already")
    _check_opening(message, sender, block, job, round_, submission)
    blob = _blob_for_round(branch, message, sender)
    if blob.expiry_height < needed_expiry(job, round_):
        raise BadBlobExpiry(f"the blob must be kept until height {needed_expiry(job, round_)}, the round's latest end")
    revealed = replace(
        submission,
        blob=message.blob,
        samples=message.samples,
        loss_micro=message.loss_micro,
        payload_bytes=blob.header.size,
    )
    _put_submission(branch, revealed)
    look_at(branch, job.id, block.height)
    return NOTHING_TO_TELL


def score_updates(branch: Branch, message: m.ScoreUpdates, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, WrongRound, WrongPhase, PhaseOver, NotScorer, AlreadyScored, BadScores."""
    job, round_ = _round_named(branch, message.job_id, message.round_index)
    _need_phase(round_, "score", block)
    if not _is_scorer(branch, job, sender):
        raise NotScorer("the sender is not an active validator that the job names as scorer")
    if tables.SCORE_SHEETS.get(branch, job.id, round_.index, sender) is not None:
        raise AlreadyScored("the sender has scored this round already")
    if [worker for worker, _ in message.scores] != [s.worker for s in submissions_of(branch, round_) if s.blob]:
        raise BadScores("scores should name each revealed worker once, sorted")
    sheet = ScoreSheet(job_id=job.id, round_index=round_.index, scorer=sender, scores=message.scores)
    tables.SCORE_SHEETS.put(branch, sheet, job.id, round_.index, sender)
    look_at(branch, job.id, block.height)
    return NOTHING_TO_TELL


def attest_state(branch: Branch, message: m.AttestState, sender: bytes, block: BlockContext) -> Effect:
    """Sent by included workers and by scorers; an account that is both attests once, for both.

    Raises: UnknownJob, WrongRound, WrongPhase, PhaseOver, NotExpected, AlreadyAttested, BadRejection.
    """
    job, round_ = _round_named(branch, message.job_id, message.round_index)
    _need_phase(round_, "aggregate", block)
    is_scorer = _is_scorer(branch, job, sender)
    if sender not in round_.included and not is_scorer:
        raise NotExpected("the sender is neither an included worker nor a scorer of this round")
    if not set(message.rejected) <= set(round_.included):
        raise BadRejection("rejected names a worker that is not included in the round")
    if sender in round_.included:
        _attest_as_worker(branch, message, sender)
    if is_scorer:
        _attest_as_scorer(branch, message, sender)
    look_at(branch, job.id, block.height)
    return NOTHING_TO_TELL


# --- shared with the phases ---------------------------------------------------------------------------------------
def commit_deadline(job: Job, round_: Round) -> int:
    """Last height for commits; fixed at opening, whatever others do."""
    return round_.opened_height + job.terms.train_blocks + job.terms.commit_blocks


def needed_expiry(job: Job, round_: Round) -> int:
    """Lowest expiry height of a blob revealed in this round (phase reveal): the latest height at which the round may
    still need it."""
    return round_.deadline + job.terms.score_blocks + job.terms.aggregate_blocks + 2


def round_namespace(job_id: int, round_index: int) -> str:
    """The namespace that blobs of a round must have."""
    return f"job/{job_id}/round/{round_index}"


def submissions_of(state: ReadableState, round_: Round) -> list[Submission]:
    """Of everybody who has committed, sorted by worker."""
    return [submission for _, submission in tables.SUBMISSIONS.iterate(state, round_.job_id, round_.index)]


def score_sheets_of(state: ReadableState, round_: Round) -> list[ScoreSheet]:
    """Of every scorer who has scored or attested, sorted by scorer."""
    return [sheet for _, sheet in tables.SCORE_SHEETS.iterate(state, round_.job_id, round_.index)]


# --- checks -------------------------------------------------------------------------------------------------------
def _round_named(state: ReadableState, job_id: int, round_index: int) -> tuple[Job, Round]:
    job = job_of(state, job_id)
    round_ = open_round_of(state, job)
    if round_ is None or round_.index != round_index:
        raise WrongRound(got=round_index, want=job.open_round)
    return job, round_


def _need_phase(round_: Round, phase: str, block: BlockContext) -> None:
    if round_.phase != phase:
        raise WrongPhase(got=round_.phase, want=phase)
    _need_in_time(block, round_.deadline)


def _need_in_time(block: BlockContext, deadline: int) -> None:
    if block.height > deadline:
        raise PhaseOver(height=block.height, deadline=deadline)


def _check_opening(
    message: m.RevealUpdate, sender: bytes, block: BlockContext, job: Job, round_: Round, submission: Submission
) -> None:
    if message.base_round != round_.base_round:
        raise WrongBase(f"the update starts from round {message.base_round}; the round's base is {round_.base_round}")
    if message.samples > job.terms.max_samples:
        raise TooManySamples(got=message.samples, limit=job.terms.max_samples)
    opened = update_commitment(
        block.chain_id,
        job.id,
        round_.index,
        sender,
        message.blob,
        message.salt,
        message.samples,
        message.loss_micro,
    )
    if opened != submission.commitment:
        raise CommitmentMismatch("the values do not open the sender's commitment")


def _blob_for_round(state: ReadableState, message: m.RevealUpdate, sender: bytes) -> Blob:
    namespace = round_namespace(message.job_id, message.round_index)
    blob = tables.BLOBS.get(state, *blob_key(message.blob, sender, namespace))
    if blob is not None:
        return blob
    if next(tables.BLOBS.iterate(state, message.blob), None) is not None:
        raise NotPublisher(f"the blob is certified, but not by the sender for {namespace}")
    raise UnknownBlob("no certificate of this blob is on chain")


def _is_scorer(state: ReadableState, job: Job, sender: bytes) -> bool:
    return sender in job.terms.scorers and active_stake(state, sender) > 0


def _attest_as_worker(branch: Branch, message: m.AttestState, sender: bytes) -> None:
    submission = tables.SUBMISSIONS.get(branch, message.job_id, message.round_index, sender)
    if submission is None:
        raise LookupError("an included worker has no submission")
    if submission.state_root:
        raise AlreadyAttested("the sender has attested already")
    _put_submission(branch, replace(submission, state_root=message.state_root, rejected=message.rejected))


def _attest_as_scorer(branch: Branch, message: m.AttestState, sender: bytes) -> None:
    key = (message.job_id, message.round_index, sender)
    fresh = ScoreSheet(job_id=message.job_id, round_index=message.round_index, scorer=sender)
    sheet = tables.SCORE_SHEETS.get(branch, *key) or fresh
    if sheet.state_root:
        raise AlreadyAttested("the sender has attested already")
    tables.SCORE_SHEETS.put(branch, replace(sheet, state_root=message.state_root, rejected=message.rejected), *key)


def _put_submission(branch: Branch, submission: Submission) -> None:
    tables.SUBMISSIONS.put(branch, submission, submission.job_id, submission.round_index, submission.worker)
