"""How long the end of a block takes when much is due at one height, what a double signature takes, and many validators:
``python benchmarks/bench_end_of_block.py [JOBS]`` from the root of the repository.

The jobs have one worker each that does nothing, the cheapest that can be made: their round is void and the next opens.
A second kind has 128 workers that have all attested, so that each round is settled.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from abci_app import tables
from abci_app.execution import begin_block, end_block
from abci_app.records import Member, Submission, Unbonding, Validator, Worker
from abci_app.rules.jobs import look_at, put_job
from abci_app.rules.stake import MAX_UNBONDINGS
from abci_app.rules.validators import put_validator
from abci_app.state import Branch
from abci_app.store import Store
from primitives.hashing import sha256
from tests.abci_app.rules.chain import Chain, address, double_sign
from tests.abci_app.rules.rounds_kit import ROOT, started

DUE_HEIGHT = 60


def chain_with_void_rounds(num_jobs: int) -> Chain:
    """`num_jobs` jobs with one idle worker, all due at DUE_HEIGHT."""
    chain = started("w0", min_workers=1)
    branch = Branch(chain.state)
    job, round_, member = chain.job(), chain.round(0), chain.member("w0")
    for job_id in range(1, num_jobs + 1):
        put_job(branch, replace(job, id=job_id))
        tables.ROUNDS.put(branch, replace(round_, job_id=job_id), job_id, 0)
        tables.MEMBERS.put(branch, replace(member, job_id=job_id), job_id, address("w0"))
        tables.ACTIVE_MEMBERS.put(branch, tables.Marker(), job_id, address("w0"))
        look_at(branch, job_id, DUE_HEIGHT)
    tables.WORKERS.put(branch, replace(chain.worker("w0"), open_jobs=num_jobs), address("w0"))
    chain.state.apply(branch)
    return chain


def chain_with_large_rounds(num_jobs: int, num_workers: int) -> Chain:
    """`num_jobs` jobs whose rounds are settled at DUE_HEIGHT, each with `num_workers` workers."""
    chain = started("w0", min_workers=1)
    branch = Branch(chain.state)
    workers = tuple(sorted(sha256(b"worker %d" % i)[:20] for i in range(num_workers)))
    for worker in workers:
        tables.WORKERS.put(branch, Worker(address=worker, bond=10**7, open_jobs=num_jobs), worker)
    job, round_ = chain.job(), chain.round(0)
    ready = replace(round_, phase="aggregate", expected=workers, included=workers, deadline=DUE_HEIGHT - 1)
    for job_id in range(1, num_jobs + 1):
        put_job(branch, replace(job, id=job_id))
        tables.ROUNDS.put(branch, replace(ready, job_id=job_id), job_id, 0)
        look_at(branch, job_id, DUE_HEIGHT)
        for worker in workers:
            member = Member(job_id=job_id, worker=worker, active=True, joined_height=1)
            tables.MEMBERS.put(branch, member, job_id, worker)
            tables.ACTIVE_MEMBERS.put(branch, tables.Marker(), job_id, worker)
            submission = Submission(job_id, 0, worker, bytes(32), 1, blob=sha256(worker), state_root=ROOT)
            tables.SUBMISSIONS.put(branch, submission, job_id, 0, worker)
    chain.state.apply(branch)
    return chain


def chain_with_unbondings(num_others: int) -> Chain:
    """`num_others` unbondings of v1, and as many of v0 as there may be."""
    chain = Chain()
    branch = Branch(chain.state)
    for number in range(1, num_others + MAX_UNBONDINGS + 1):
        owner = address("v0" if number <= MAX_UNBONDINGS else "v1")
        record = Unbonding(id=number, owner=owner, amount=100, release_height=2_000, role="validator")
        tables.UNBONDINGS.put(branch, record, record.release_height, record.id)
        tables.UNBONDINGS_OF.put(branch, tables.Marker(), owner, record.release_height, record.id)
    chain.state.apply(branch)
    return chain


def chain_with_validators(num_validators: int) -> Chain:
    """So many active validators, far more than take part in consensus."""
    chain = Chain()
    branch = Branch(chain.state)
    for number in range(num_validators):
        key = sha256(b"%d" % number)
        put_validator(branch, Validator(operator=key[:20], consensus_key=key, bond=10**7 + number))
    chain.state.apply(branch)
    return chain


def measure(name: str, chain: Chain, what: Callable[[Branch], object]) -> None:
    """Over LevelDB, as in a node; the first of several blocks is what the cap is for."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        store.commit(store.prepare(1, dict(chain.state.items)))
        for number in range(1, 4):
            branch = Branch(store.committed)
            started_at = time.perf_counter()
            what(branch)
            executed = time.perf_counter()
            prepared = store.prepare(1 + number, branch.writes)
            done = time.perf_counter()
            store.commit(prepared)
            print(
                f"{name}, block {number}: rules {executed - started_at:.3f} s, app hash {done - executed:.3f} s, "
                f"{len(branch.writes):,} records"
            )


def main() -> None:
    num_jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    chain = chain_with_void_rounds(num_jobs)
    measure(f"{num_jobs:,} idle jobs due", chain, lambda branch: end_block(branch, chain.context(DUE_HEIGHT)))
    large = chain_with_large_rounds(100, 128)
    measure("100 rounds of 128 due", large, lambda branch: end_block(branch, large.context(DUE_HEIGHT)))
    stake = chain_with_unbondings(20_000)
    evidence = [double_sign("v0")]
    measure("double signature", stake, lambda branch: begin_block(branch, stake.context(), evidence))
    many = chain_with_validators(10_000)
    measure("10,000 validators", many, lambda branch: end_block(branch, many.context()))


if __name__ == "__main__":
    main()
