"""Everyone who follows a job: holds the shared state of its last settled round, as the chain's record names it.

What the next state is follows from the base state and the frozen set of blobs alone, so a participant that missed
rounds computes them anew from their settlements, or takes a stored checkpoint whose root the chain vouches for.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from abci_app.records import Blob, Deal, Job, Settlement
from abci_app.rules.rounds import round_namespace
from da_layer.client import retrieve
from da_layer.errors import BlobPruned, BlobUnknown, DaError, InvalidEncoding
from node.client import Client
from node.job_setup import JobSetup
from node.row_holders import row_holders
from node.storing import fetch_file
from node.worker_home import DaemonError
from storage.errors import StorageError
from training import Aggregate, SharedState, aggregate
from training.errors import EmptyRound, StateOverflow, TrainingError
from training.payload import max_payload_bytes

RETRIEVE_TIMEOUT_S: Final = 30.0
CHECKPOINT_TRIES: Final = 3
SIZE_SLACK_BYTES: Final = 4096
"""States of one job differ in size by the digits of a few numbers."""

LocalPayload = Callable[[bytes], bytes | None]
"""Blob commitment -> payload, for blobs that this process made itself."""


class CannotCatchUp(DaemonError):
    """The chain's state can be reached neither by computing nor from a checkpoint."""


class BlobMissing(Exception):
    """A blob of the round could not be had just now; may work later."""


class BlobGone(BlobMissing):
    """A blob of the round is pruned, or was never stored; it will not come back."""


def checkpoint_series(job_id: int) -> str:
    """Where a job's checkpoints are listed."""
    return f"job/{job_id}/checkpoints"


class Participant:
    """The shared state of one job, kept at the last settled round. `scratch` takes downloads."""

    def __init__(
        self,
        client: Client,
        setup: JobSetup,
        scratch: Path,
        log: FilteringBoundLogger,
        *,
        shared: SharedState | None = None,
        local_payload: LocalPayload = lambda commitment: None,
    ) -> None:
        self._client = client
        self.setup = setup
        self._scratch = scratch
        self._log = log
        self._local_payload = local_payload
        self._computed: dict[bytes, SharedState] = {}
        self.shared: SharedState = shared or setup.genesis

    async def compute(self, round_index: int, blobs: Sequence[tuple[bytes, bytes]]) -> Aggregate:
        """The outcome of a round over its frozen set of (worker, blob), from the shared state.

        A set without one usable update leaves the state as it is, with everybody rejected.
        Raises: BlobMissing, NodeError.
        """
        fetched = await asyncio.gather(*(self.payload(worker, blob, round_index) for worker, blob in blobs))
        updates = [(worker, payload) for (worker, _), payload in zip(blobs, fetched, strict=True)]
        try:
            result = await asyncio.to_thread(aggregate, self.setup.config, self.shared, round_index, updates)
        except (EmptyRound, StateOverflow) as error:
            self._log.warning("round leaves the model as it is", round=round_index, reason=str(error))
            everyone = tuple(sorted(worker for worker, _ in updates))
            return Aggregate(state=self.shared, included=(), rejected=everyone, clipped=())
        self._computed = {result.state.root: result.state}
        return result

    async def payload(self, worker: bytes, commitment: bytes, round_index: int) -> bytes:
        """A worker's payload: its own bytes, or empty (which aggregation rejects) when no reader can use the blob.

        Raises: BlobMissing when it cannot be had now.
        """
        own = self._local_payload(commitment)
        if own is not None:
            return own
        namespace = round_namespace(self.setup.job_id, round_index)
        record = await self._client.blob(commitment, publisher=worker, namespace=namespace)
        if record is None:
            raise BlobMissing(f"the node does not know blob {commitment.hex()[:16]} yet")
        if record.header.size > max_payload_bytes(self.setup.config):
            return b""
        return await self._retrieve(record, worker)

    async def _retrieve(self, record: Blob, worker: bytes) -> bytes:
        services = await row_holders(self._client, record)
        if services is None:
            raise BlobMissing("the node does not know who serves blobs")
        try:
            return await retrieve(self._client.session, record.header, services, timeout_s=RETRIEVE_TIMEOUT_S)
        except InvalidEncoding as error:
            self._log.warning("blob is no valid encoding", worker=worker.hex(), reason=str(error))
            return b""
        except (BlobUnknown, BlobPruned) as error:
            raise BlobGone(f"blob {record.header.commitment.hex()[:16]} is gone: {error}") from error
        except DaError as error:
            raise BlobMissing(str(error)) from error

    async def catch_up(self, job: Job) -> list[Settlement]:
        """Bring the shared state to the job's last settled round; returns the settlements passed, oldest first.

        Raises: BlobMissing, NodeError, CannotCatchUp.
        """
        if self.shared.round_index == job.settled_round and self.shared.root == job.state_root:
            return []
        settlements = await self._settlements()
        if not self._is_on_chain(settlements):
            self._log.warning("the saved state is not of this chain; starting from genesis")
            self.shared = self.setup.genesis
        passed = [item for item in settlements if item.round_index > self.shared.round_index]
        await self._replay(passed, settlements)
        return passed

    async def _settlements(self) -> list[Settlement]:
        job_id = self.setup.job_id
        return await self._client.every(lambda cursor: self._client.settlements(job_id, cursor, limit=500))

    def _is_on_chain(self, settlements: Sequence[Settlement]) -> bool:
        if self.shared.round_index < 0:
            return self.shared.root == self.setup.genesis.root
        return any(
            item.round_index == self.shared.round_index and item.state_root == self.shared.root for item in settlements
        )

    async def _replay(self, passed: Sequence[Settlement], settlements: Sequence[Settlement]) -> None:
        for settlement in passed:
            try:
                await self._apply(settlement)
            except (BlobMissing, CannotCatchUp) as error:
                self._log.warning("round cannot be computed", round=settlement.round_index, reason=str(error))
                await self._load_checkpoint(settlements, error)
                rest = [item for item in passed if item.round_index > self.shared.round_index]
                for later in rest:
                    await self._apply(later)
                return

    async def _apply(self, settlement: Settlement) -> None:
        """One settled round onto the shared state; a state computed already is taken over."""
        known = self._computed.get(settlement.state_root)
        if known is None:
            known = (await self.compute(settlement.round_index, settlement.blobs)).state
        if known.root != settlement.state_root:
            raise CannotCatchUp(
                f"round {settlement.round_index} gives root {known.root.hex()[:16]}… here, the chain settled "
                f"{settlement.state_root.hex()[:16]}…; is this the same version of outerstep as the others run?"
            )
        self.shared = known
        self._computed.clear()

    async def _load_checkpoint(self, settlements: Sequence[Settlement], cause: Exception) -> None:
        """The newest stored checkpoint that the chain vouches for and that is ahead of the state held."""
        roots = {item.state_root: item.round_index for item in settlements}
        series = checkpoint_series(self.setup.job_id)
        deals = await self._client.every(
            lambda cursor: self._client.deals(series=series, status="active", cursor=cursor, limit=500)
        )
        for deal in await self._promising(deals, settlements):
            state = await self._checkpoint(deal, roots)
            if state is not None and state.round_index > self.shared.round_index:
                self._log.info("took a checkpoint from storage", deal=deal.id, round=state.round_index)
                self.shared = state
                return
        if isinstance(cause, BlobMissing) and not isinstance(cause, BlobGone):
            raise cause
        raise CannotCatchUp(f"{cause}; and no stored checkpoint of series {series} helps") from cause

    async def _promising(self, deals: Sequence[Deal], settlements: Sequence[Settlement]) -> list[Deal]:
        """Which deals to try. Anyone may put files of any size into a series: those of no state's size are passed
        over, and those of workers whom the job has paid come first, newest first."""
        paid = {outcome.worker for item in settlements for outcome in item.outcomes if outcome.verdict == "paid"}
        most = len(await asyncio.to_thread(self.setup.genesis.to_bytes)) + SIZE_SLACK_BYTES
        fitting = [deal for deal in deals if deal.size <= most]
        return sorted(fitting, key=lambda deal: (deal.owner in paid, deal.id), reverse=True)[:CHECKPOINT_TRIES]

    async def _checkpoint(self, deal: Deal, roots: Mapping[bytes, int]) -> SharedState | None:
        target = self._scratch / f"checkpoint-{deal.id}"
        try:
            await fetch_file(self._client, deal, target)
            state = await asyncio.to_thread(lambda: SharedState.from_bytes(target.read_bytes()))
        except (StorageError, TrainingError) as error:
            self._log.warning("checkpoint is not usable", deal=deal.id, reason=str(error))
            return None
        finally:
            target.unlink(missing_ok=True)
        return state if roots.get(state.root) == state.round_index else None
