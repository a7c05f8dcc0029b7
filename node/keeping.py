"""What a worker puts into storage beside its rounds: checkpoints of the shared state, and its log."""

import asyncio
import shutil
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from abci_app.messages import DeleteDeal
from abci_app.records import Deal
from node.client import Client
from node.errors import NodeError
from node.participant import checkpoint_series
from node.storing import store_file
from node.worker_home import DaemonHome, write_atomically
from node.worker_options import WorkerOptions
from primitives.deals import Tier
from storage.errors import StorageError
from training import SharedState

__all__ = ["Keeper", "checkpoint_series", "log_series"]


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
        self._waiting: asyncio.Queue[SharedState | None] = asyncio.Queue()
        """States to store; None stands for the log."""
        self._task: asyncio.Task[None] | None = None

    def checkpoint(self, state: SharedState) -> None:
        """Store this state soon."""
        self._add(state)

    def log(self) -> None:
        """Store the log as it is by then, where the options ask for it."""
        if self._options.log_duration:
            self._add(None)

    async def finish(self, timeout_s: float) -> None:
        """Wait for what is under way; what is not done in time can be stored again later."""
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _add(self, item: SharedState | None) -> None:
        self._waiting.put_nowait(item)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while not self._waiting.empty():
            item = self._waiting.get_nowait()
            try:
                await (self._store_log() if item is None else self._store_checkpoint(item))
            except (NodeError, StorageError, OSError) as error:
                what = "log" if item is None else f"checkpoint of round {item.round_index}"
                self._log.warning(f"{what} is not stored", reason=str(error))

    async def _store_checkpoint(self, state: SharedState) -> None:
        series = checkpoint_series(self._options.job_id)
        path = self._home.data / f"checkpoint-{state.round_index}.safetensors"
        await asyncio.to_thread(lambda: write_atomically(path, state.to_bytes(), sync=False))
        deal = await self._store(path, "hot", self._options.checkpoint_duration, series)
        self._log.info("checkpoint stored", round=state.round_index, deal=deal.id, bytes=deal.size)
        await self._delete_older(series)

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

    async def _delete_older(self, series: str) -> None:
        """End own deals of the series beyond the newest that are kept."""
        assert self._client.key is not None
        mine = self._client.key.address
        deals = await self._client.every(
            lambda cursor: self._client.deals(owner=mine, series=series, status="active", cursor=cursor, limit=500)
        )
        for deal in sorted(deals, key=lambda item: item.id)[: -self._options.keep_checkpoints]:
            await self._client.send([DeleteDeal(deal_id=deal.id)])
