"""Training jobs whose first round stays open for a whole load, and the workers in them.

The rules take one commitment from each worker for each round, and a round goes on once all have committed. So for every
group of `WORKERS` workers there are as many jobs as each of them makes commitments, and each worker joins all jobs of
its group. Nobody reveals: the rounds end void some time later, and for each its workers lose a little of their bonds.
The jobs are called off beforehand, so that no other round follows.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp

from abci_app.messages import CancelJob, CreateJob, JobTerms, JoinJob, Message, RegisterWorker
from abci_app.params import Params
from abci_app.transactions import MAX_MESSAGES
from abci_app.work import minimum_fee
from localnet.load.errors import LoadError
from localnet.load.funding import send_all
from localnet.load.steps import Tell, step
from localnet.load.target import Target
from node.client import Client
from primitives.keys import PrivateKey

WORKERS: Final = 32
"""In a job, at most."""
MOST_AT_ONCE: Final = 64
"""Workers that join at a time; calls under way when jobs are looked at."""
OPENING_S: Final = 60.0
GENESIS_ROOT: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of each group of workers. Account i belongs to group i // `group_size`."""

    group_size: int
    by_group: tuple[tuple[int, ...], ...]

    def of(self, account: int) -> tuple[int, ...]:
        return self.by_group[account // self.group_size]


def group_sizes(num_workers: int) -> list[int]:
    """Of groups as large as each other, but for the last one."""
    num_groups = -(-num_workers // WORKERS)
    size = -(-num_workers // num_groups)
    return [min(size, num_workers - start) for start in range(0, num_workers, size)]


def joining(job_ids: Sequence[int], params: Params) -> list[list[Message]]:
    """What a worker sends, by transaction, to take part in these jobs."""
    messages: list[Message] = [RegisterWorker(bond=params.min_worker_bond)]
    messages += [JoinJob(job_id=job_id, genesis_root=GENESIS_ROOT) for job_id in job_ids]
    return [messages[start : start + MAX_MESSAGES] for start in range(0, len(messages), MAX_MESSAGES)]


def cost_of_joining(num_jobs: int, params: Params) -> int:
    """What that takes from a worker, its bond included, 10^-6 token."""
    fees = sum(minimum_fee(part, params) for part in joining(range(num_jobs), params))
    return params.min_worker_bond + fees


async def open_jobs(target: Target, keys: Sequence[PrivateKey], jobs_each: int) -> Jobs:
    """Jobs in which each of `keys` (which have the money for it) can commit once in each of `jobs_each` rounds, now.

    Raises: LoadError, NodeError.
    """
    sizes = group_sizes(len(keys))
    messages = [
        CreateJob(key=secrets.token_bytes(32), terms=_terms(size, target.params))
        for size in sizes
        for _ in range(jobs_each)
    ]
    with step(f"creating {len(messages):,} jobs") as tell:
        ids = await send_all(target, messages, spent_micro=len(messages), on_progress=tell)
    jobs = Jobs(sizes[0], tuple(tuple(ids[start : start + jobs_each]) for start in range(0, len(ids), jobs_each)))
    with step(f"having {len(keys):,} workers join {jobs_each:,} jobs each") as tell:
        await _join_all(target, keys, jobs, tell)
    async with target.client(target.faucet) as client:
        await _until_open(client, ids)
    with step("calling them off, so that their first round is the last") as tell:
        await send_all(target, [CancelJob(job_id=job_id) for job_id in ids], spent_micro=0, on_progress=tell)
    return jobs


def _terms(num_workers: int, params: Params) -> JobTerms:
    """Of the longest time that the chain allows a round three quarters are for commitments, the rest for reveals."""
    quarter = params.unbonding_blocks // 4
    return JobTerms(
        manifest=b"load",
        data_root=bytes(32),
        data_size=0,
        genesis_root=GENESIS_ROOT,
        num_rounds=1,
        min_workers=num_workers,
        max_workers=num_workers,
        reward_per_round=1,
        max_samples=1,
        train_blocks=3 * quarter - 1,
        commit_blocks=1,
        reveal_blocks=quarter,
        score_blocks=0,
        aggregate_blocks=1,
        scorers=(),
    )


async def _join_all(target: Target, keys: Sequence[PrivateKey], jobs: Jobs, tell: Tell) -> None:
    """Raises: NodeError."""
    at_once = asyncio.Semaphore(MOST_AT_ONCE)
    done = 0

    async def join(number: int, session: aiohttp.ClientSession) -> None:
        nonlocal done
        async with at_once, target.client(keys[number], number, session=session) as client:
            for part in joining(jobs.of(number), target.params):
                await client.send(part)
        done += 1
        tell(done, len(keys))

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(join(number, session) for number in range(len(keys))))


async def _until_open(client: Client, job_ids: Sequence[int]) -> None:
    """Wait until the first round of each job is open: a block looks at some of them only.

    Raises: LoadError, NodeError.
    """
    waiting = list(job_ids)
    try:
        async with asyncio.timeout(OPENING_S):
            while waiting:
                height = await client.height()
                found = [await client.job(job_id) for job_id in waiting[:MOST_AT_ONCE]]
                opened = {job.id for job in found if job is not None and job.open_round == 0}
                waiting = [job_id for job_id in waiting if job_id not in opened]
                if not opened:
                    await client.wait_for_height(height + 1)
    except TimeoutError as error:
        raise LoadError(f"{len(waiting)} jobs have opened no round within {OPENING_S:.0f} s") from error
