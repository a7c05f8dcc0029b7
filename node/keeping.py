"""What a worker puts into storage beside its rounds: checkpoints of the shared state, and its log.

Who stores: the workers that a settlement pays take turns, so one that is away, or takes its pay and stores nothing,
costs the series every so many checkpoints, never all of them. Who deletes: at every settlement each worker ends its own
deals whose round is no longer among the newest settled ones; so the series stays short whoever stored last.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from abci_app.messages import DeleteDeal
from abci_app.records import Deal, Settlement
from node.client import Client
from node.errors import NodeError
from node.files import write_atomically
from node.participant import checkpoint_series
from node.storing import store_file
from node.worker_home import DaemonHome
from node.worker_options import WorkerOptions
from primitives.deals import Tier
from storage.errors import StorageError
from training import SharedState

__all__ = ["Keeper", "checkpoint_series", "log_series"]


def stores_checkpoint(worker: bytes, settlement: Settlement) -> bool:
    """Whether it is this worker's turn to store the state that the settlement made."""
    paid = sorted(outcome.worker for outcome in settlement.outcomes if outcome.verdict == "paid")
    return bool(paid) and paid[settlement.round_index % len(paid)] == worker


def log_series(job_id: int) -> str:
    """Where the logs of a job's workers are listed."""
    return f"job/{job_id}/logs"


class Keeper:
    """Stores checkpoints and logs in the background, one at a time. Trouble is logged; rounds never wait for it."""

    def __init__(self, client: Client, home: DaemonHome, options: WorkerOptions, log: FilteringBoundLogger) -> None:
        self._client = client
        self._home = home
        self._options = options
        self._log = log
        self._waiting: asyncio.Queue[tuple[str, Callable[[], Awaitable[None]]]] = asyncio.Queue()
        """What to do, for the log, and how."""
        self._rounds: dict[int, int] = {}
        """Deal that this process made -> round of its checkpoint."""
        self._task: asyncio.Task[None] | None = None

    def checkpoint(self, state: SharedState) -> None:
        """Store this state soon."""
        self._add(f"storing the checkpoint of round {state.round_index}", lambda: self._store_checkpoint(state))

    def forget_old_checkpoints(self) -> None:
        """End own deals of checkpoints that are no longer kept, soon."""
        self._add("deleting old checkpoints", self._delete_older)

    def log(self) -> None:
        """Store the log as it is by then, where the options ask for it."""
        if self._options.log_duration:
            self._add("storing the log", self._store_log)

    async def finish(self, timeout_s: float) -> None:
        """Wait for what is under way; what is not done in time can be stored again later."""
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _add(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        self._waiting.put_nowait((what, work))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while not self._waiting.empty():
            what, work = self._waiting.get_nowait()
            try:
                await work()
            except (NodeError, StorageError, OSError) as error:
                self._log.warning(f"{what} failed", reason=str(error))

    async def _store_checkpoint(self, state: SharedState) -> None:
        series = checkpoint_series(self._options.job_id)
        path = self._home.data / f"checkpoint-{state.round_index}.safetensors"
        await asyncio.to_thread(lambda: write_atomically(path, state.to_bytes(), sync=False))
        deal = await self._store(path, "hot", self._options.checkpoint_duration, series)
        self._rounds[deal.id] = state.round_index
        self._log.info("checkpoint stored", round=state.round_index, deal=deal.id, bytes=deal.size)

    async def _store_log(self) -> None:
        path = self._home.data / "log.copy"
        await asyncio.to_thread(shutil.copyfile, self._home.log_file, path)
        deal = await self._store(path, "temporary", self._options.log_duration, log_series(self._options.job_id))
        self._log.info("log stored", deal=deal.id, bytes=deal.size, ends=deal.end_height)

    async def _store(self, path: Path, tier: Tier, duration: int, series: str) -> Deal:
        services = await self._client.service_set()
        providers = sum(bool(member.url) for member in services.members) if services else 0
        try:
            return await store_file(
                self._client,
                path,
                tier=tier,
                replicas=max(1, min(self._options.replicas, providers)),
                duration=duration,
                series=series,
                journal=self._home.journal,
            )
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _delete_older(self) -> None:
        """A deal of another run belongs to the last round settled before it was made: nobody has a state earlier."""
        oldest = await self._oldest_kept()
        if oldest is None:
            return
        assert self._client.key is not None
        mine, series = self._client.key.address, checkpoint_series(self._options.job_id)
        deals = await self._client.every(
            lambda cursor: self._client.deals(owner=mine, series=series, status="active", cursor=cursor, limit=500)
        )
        for deal in deals:
            round_index = self._rounds.get(deal.id)
            is_old = deal.created_height <= oldest.height if round_index is None else round_index < oldest.round_index
            if is_old:
                await self._client.send([DeleteDeal(deal_id=deal.id)])
                self._log.info("old checkpoint deleted", deal=deal.id)

    async def _oldest_kept(self) -> Settlement | None:
        """The oldest of the newest settlements whose checkpoints are kept; None while there are not so many."""
        job = await self._client.job(self._options.job_id)
        if job is None or job.settled_rounds < self._options.keep_checkpoints:
            return None
        found = 0
        for round_index in range(job.settled_round, -1, -1):
            settlement = await self._client.settlement(job.id, round_index)
            found += settlement is not None
            if found == self._options.keep_checkpoints:
                return settlement
        return None
