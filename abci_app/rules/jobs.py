"""Jobs and who takes part in them.

A member is active (expected in rounds that open) or not. Its worker's bond is locked while it is active or expected in
the round in progress, so that nobody escapes the slash of a running round by leaving.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext
from abci_app.errors import (
    AlreadyMember,
    BadBlobExpiry,
    BondTooSmall,
    JobFull,
    JobKeyUsed,
    JobNotOpen,
    NotJobOwner,
    NotMember,
    RoundTooLong,
    UnknownJob,
    UnknownValidator,
    WrongGenesisRoot,
)
from abci_app.ledger import counters_of, credit, debit, params_of
from abci_app.params import Params
from abci_app.records import Job, Member, Round
from abci_app.rules.effect import NOTHING_TO_TELL, Effect
from abci_app.rules.workers import count_open_job, worker_of
from abci_app.state import Branch, ReadableState
from primitives.encoding import encode
from primitives.hashing import sha256

NO_ROUND = -1


def create_job(branch: Branch, message: m.CreateJob, sender: bytes, block: BlockContext) -> Effect:
    """Raises: JobKeyUsed, RoundTooLong, BadBlobExpiry, UnknownValidator (a scorer), InsufficientFunds."""
    terms_hash = sha256(encode(message))
    known = tables.JOB_KEYS.get(branch, sender, message.key)
    if known is not None:
        if known.terms_hash != terms_hash:
            raise JobKeyUsed(f"the key belongs to job {known.id}, which has other terms")
        return Effect(created_id=known.id)
    check_spans(message.terms, params_of(branch))
    for scorer in message.terms.scorers:
        if tables.VALIDATORS.get(branch, scorer) is None:
            raise UnknownValidator("a scorer is not the operator of a validator")
    terms = message.terms
    escrow = terms.num_rounds * terms.reward_per_round
    debit(branch, sender, escrow)
    counters = counters_of(branch)
    job_id = counters.next_job
    tables.COUNTERS.put(branch, replace(counters, next_job=job_id + 1))
    tables.JOB_KEYS.put(branch, tables.IdRecord(job_id, terms_hash), sender, message.key)
    job = Job(
        id=job_id,
        owner=sender,
        terms=terms,
        status="open",
        created_height=block.height,
        escrow=escrow,
        next_round=0,
        open_round=NO_ROUND,
        settled_rounds=0,
        settled_round=NO_ROUND,
        state_root=terms.genesis_root,
    )
    put_job(branch, job)
    tables.OPEN_JOBS.put(branch, tables.Marker(), job_id)
    return Effect(created_id=job_id)


def cancel_job(branch: Branch, message: m.CancelJob, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, NotJobOwner, JobNotOpen."""
    job = job_of(branch, message.job_id)
    if job.owner != sender:
        raise NotJobOwner("only the owner may cancel a job")
    _need_open(job)
    if job.open_round == NO_ROUND:
        end_job(branch, job, "cancelled")
    else:
        put_job(branch, replace(job, status="closing"))
    return NOTHING_TO_TELL


def join_job(branch: Branch, message: m.JoinJob, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, JobNotOpen, WrongGenesisRoot, UnknownWorker, BondTooSmall, AlreadyMember, JobFull."""
    job = job_of(branch, message.job_id)
    _need_open(job)
    if message.genesis_root != job.terms.genesis_root:
        raise WrongGenesisRoot("the worker's genesis state is not the job's")
    worker = worker_of(branch, sender)
    least = params_of(branch).min_worker_bond
    if worker.bond < least:
        raise BondTooSmall(got=worker.bond, want=least)
    if is_active(branch, job.id, sender):
        raise AlreadyMember("the sender takes part in this job already")
    if sum(1 for _ in active_members(branch, job.id)) >= job.terms.max_workers:
        raise JobFull(f"the job has {job.terms.max_workers} workers already")
    fresh = Member(job_id=job.id, worker=sender, active=True, joined_height=block.height)
    member = tables.MEMBERS.get(branch, job.id, sender) or fresh
    _put_member(branch, replace(member, active=True, missed=0, joined_height=block.height))
    if not is_expected(branch, job, sender):
        count_open_job(branch, sender, +1)
    look_at(branch, job.id, block.height)
    return NOTHING_TO_TELL


def leave_job(branch: Branch, message: m.LeaveJob, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownJob, NotMember."""
    job = job_of(branch, message.job_id)
    member = tables.MEMBERS.get(branch, job.id, sender)
    if member is None or not member.active:
        raise NotMember("the sender takes no part in this job")
    _put_member(branch, replace(member, active=False))
    if not is_expected(branch, job, sender):
        count_open_job(branch, sender, -1)
    return NOTHING_TO_TELL


def _need_open(job: Job) -> None:
    if job.status != "open":
        raise JobNotOpen(f"job {job.id} is {job.status}")


def check_spans(terms: m.JobTerms, params: Params) -> None:
    """Whoever commits must be able to reveal: in time, and with a blob that lasts as long as the round may need it.

    A promise fixes the blob's k and n, which follow from a service set that was the newest when the round opened or
    later. That set is replaced in the next block at the earliest, and `validators.may_be_named` for `unbonding_blocks`
    from then on; the last reveal comes at most train + commit + reveal blocks after that block.

    Raises: RoundTooLong, BadBlobExpiry (see `rounds.needed_expiry`).
    """
    until_revealed = terms.train_blocks + terms.commit_blocks + terms.reveal_blocks
    if until_revealed > params.unbonding_blocks:
        raise RoundTooLong(got=until_revealed, limit=params.unbonding_blocks)
    needed = terms.reveal_blocks + terms.score_blocks + terms.aggregate_blocks + 1
    if needed > params.max_blob_lifetime:
        raise BadBlobExpiry(f"blobs would have to last {needed} blocks; at most {params.max_blob_lifetime} are allowed")


# --- reading and writing, also for rounds -------------------------------------------------------------------------
def job_of(state: ReadableState, job_id: int) -> Job:
    """Raises: UnknownJob."""
    job = tables.JOBS.get(state, job_id)
    if job is None:
        raise UnknownJob(f"there is no job {job_id}")
    return job


def put_job(branch: Branch, job: Job) -> None:
    tables.JOBS.put(branch, job, job.id)


def look_at(branch: Branch, job_id: int, height: int) -> None:
    """Have the end of the block at `height` look at the job."""
    tables.DUE_JOBS.put(branch, tables.Marker(), height, job_id)


def open_round_of(state: ReadableState, job: Job) -> Round | None:
    """The round in progress, if there is one."""
    return None if job.open_round == NO_ROUND else tables.ROUNDS.get(state, job.id, job.open_round)


def active_members(state: ReadableState, job_id: int) -> Iterator[bytes]:
    """Addresses of the active members, sorted."""
    prefix = len(tables.ACTIVE_MEMBERS.key(job_id))
    for key, _ in tables.ACTIVE_MEMBERS.iterate(state, job_id):
        yield key[prefix:]


def is_active(state: ReadableState, job_id: int, worker: bytes) -> bool:
    return state.get(tables.ACTIVE_MEMBERS.key(job_id, worker)) is not None


def is_expected(state: ReadableState, job: Job, worker: bytes) -> bool:
    """Whether the worker takes part in the round in progress."""
    round_ = open_round_of(state, job)
    return round_ is not None and worker in round_.expected


def finish_member(branch: Branch, job_id: int, worker: bytes, *, missed: bool, paid: int) -> None:
    """Book one closed round for a member: its misses in a row, its pay; unlock its bond if it is out of the job now."""
    member = tables.MEMBERS.get(branch, job_id, worker)
    if member is None:
        raise LookupError(f"job {job_id} expected a worker that is not its member")
    in_a_row = member.missed + 1 if missed else 0
    active = member.active and in_a_row < params_of(branch).max_missed_rounds
    _put_member(branch, replace(member, missed=in_a_row, active=active, earned=member.earned + paid))
    if not active:
        count_open_job(branch, worker, -1)


def end_job(branch: Branch, job: Job, status: Literal["done", "cancelled"]) -> None:
    """Give the escrow back, let the members go. No round may be in progress."""
    credit(branch, job.owner, job.escrow)
    put_job(branch, replace(job, status=status, escrow=0))
    tables.OPEN_JOBS.delete(branch, job.id)
    for worker in list(active_members(branch, job.id)):
        member = tables.MEMBERS.get(branch, job.id, worker)
        if member is not None:
            _put_member(branch, replace(member, active=False))
            count_open_job(branch, worker, -1)


def _put_member(branch: Branch, member: Member) -> None:
    tables.MEMBERS.put(branch, member, member.job_id, member.worker)
    if member.active:
        tables.ACTIVE_MEMBERS.put(branch, tables.Marker(), member.job_id, member.worker)
    else:
        tables.ACTIVE_MEMBERS.delete(branch, member.job_id, member.worker)
