"""Becoming a member of a job, and staying one: the worker's bond and its place among the job's workers."""

from typing import Final

from structlog.typing import FilteringBoundLogger

from abci_app.errors import BondTooSmall, InsufficientFunds, JobFull, WorkerExists, WrongGenesisRoot
from abci_app.messages import JoinJob, Message, RegisterWorker
from abci_app.records import Job
from node.client import Client
from node.errors import TransactionFailed
from node.worker_home import DaemonError
from node.worker_options import WorkerOptions
from primitives.amounts import format_tokens

FOR_GOOD: Final = frozenset(error.code for error in (InsufficientFunds, JobFull, WrongGenesisRoot))
"""Refusals of joining that waiting does not cure."""
CHANGED_MEANWHILE: Final = frozenset(error.code for error in (WorkerExists, BondTooSmall))
"""The bond was filled up, or slashed again, since it was read: the next look shows what to do."""


class CannotJoin(DaemonError):
    """The chain does not take this worker into the job."""


class Membership:
    """One account's place in one job. `join` may be called at every look."""

    def __init__(
        self, client: Client, worker: bytes, genesis_root: bytes, options: WorkerOptions, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._me = worker
        self._genesis_root = genesis_root
        self._options = options
        self._log = log
        self._top_ups = 0

    async def join(self, job: Job) -> bool:
        """Put up the bond where it is missing, or what a slash took of it, and join; True when that was needed.

        Raises: CannotJoin for lack of funds, a full job, or when the bond was slashed too often; NodeError.
        """
        members = await self._client.members(job.id)
        if job.status != "open" or any(member.worker == self._me and member.active for member in members):
            return False
        messages: list[Message] = []
        missing = await self._missing_bond()
        if missing:
            messages.append(RegisterWorker(bond=missing))
        messages.append(JoinJob(job_id=job.id, genesis_root=self._genesis_root))
        try:
            await self._client.send(messages)
        except TransactionFailed as error:
            if error.code in FOR_GOOD:
                raise CannotJoin(f"cannot join job {job.id}: {error.log}") from error
            if error.code not in CHANGED_MEANWHILE:
                raise
            return False
        return True

    async def _missing_bond(self) -> int:
        """What to put up before the chain takes the worker, 10^-6 token; 0: nothing."""
        worker = await self._client.worker(self._me)
        least = (await self._client.params()).min_worker_bond
        if worker is None:
            return self._options.bond or least
        if worker.bond >= least:
            return 0
        if self._top_ups >= self._options.max_top_ups:
            raise CannotJoin(
                f"the bond was slashed below {format_tokens(least)} {self._top_ups + 1} times: each time a promised "
                "update was not revealed in time. Find out why (worker.log), then start the worker again"
            )
        self._top_ups += 1
        missing = max(self._options.bond or least, least) - worker.bond
        self._log.warning("the bond was slashed; filling it up", bond=worker.bond, adding=missing)
        return missing
