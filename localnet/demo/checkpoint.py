"""The newest checkpoint: fetched from storage, checked against the chain by a Merkle proof, judged on held-out text."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abci_app.records import Deal
from abci_app.tables import SETTLEMENTS
from localnet.demo.job import DemoJob
from node.client import Client
from node.keeping import log_series
from node.participant import checkpoint_series
from node.storing import fetch_file
from training import SharedState, evaluate

JUDGED_WINDOWS: Final = 1024
"""Evenly spread over the held-out text."""


class CheckpointMissing(Exception):
    """No checkpoint of the job is in storage."""


@dataclass(frozen=True, slots=True)
class CheckedCheckpoint:
    """A checkpoint and what the chain says about it."""

    path: Path
    deal: Deal
    state: SharedState
    root_verified: bool
    """Its root is that of the settlement of its round, which is proven against a block header."""


async def checkpoint_deals(client: Client, job_id: int) -> list[Deal]:
    """All hot checkpoints of the job that were ever active, oldest first; the status says which are kept."""
    deals = await client.every(lambda cursor: client.deals(series=checkpoint_series(job_id), cursor=cursor))
    return [deal for deal in deals if deal.start_height and deal.tier == "hot"]


async def log_deals(client: Client, job_id: int) -> list[Deal]:
    """All temporary logs of the job that were ever active, oldest first."""
    deals = await client.every(lambda cursor: client.deals(series=log_series(job_id), cursor=cursor))
    return [deal for deal in deals if deal.start_height and deal.tier == "temporary"]


async def fetch_newest(client: Client, job_id: int, folder: Path) -> CheckedCheckpoint:
    """Download the newest checkpoint into `folder` and check its root.

    Raises: CheckpointMissing, NodeError, StorageError, TrainingError (not a state).
    """
    deals = [deal for deal in await checkpoint_deals(client, job_id) if deal.status == "active"]
    if not deals:
        raise CheckpointMissing(f"job {job_id} has no checkpoint in storage; the workers' logs say why")
    deal = deals[-1]
    path = folder / "checkpoint.safetensors"
    path.unlink(missing_ok=True)
    await fetch_file(client, deal, path)
    state = await asyncio.to_thread(lambda: SharedState.from_bytes(path.read_bytes()))
    settlement = await client.proved(SETTLEMENTS, job_id, state.round_index)
    verified = settlement is not None and settlement.state_root == state.root
    return CheckedCheckpoint(path=path, deal=deal, state=state, root_verified=verified)


def judge(job: DemoJob, state: SharedState) -> tuple[float, float, float]:
    """(loss of the genesis state, loss of `state`, bigram loss) on the same held-out tokens, nats per token."""
    return (
        evaluate(job.config, job.genesis, job.corpus, JUDGED_WINDOWS),
        evaluate(job.config, state, job.corpus, JUDGED_WINDOWS),
        job.corpus.bigram_loss(job.config.block_length, JUDGED_WINDOWS),
    )
