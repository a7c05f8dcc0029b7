"""What everyone who takes part in a job needs before its first round: terms, configuration, text and genesis state."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from abci_app.messages import JobTerms
from node.client import Client
from node.storing import StoringFailed, fetch_file, find_deal
from node.worker_home import DaemonError
from storage.errors import StorageError
from storage.tree import FileTree
from training import Corpus, SharedState, TrainingConfig
from training.errors import TrainingError

MIN_COMMIT_BLOCKS: Final = 2
MIN_REVEAL_BLOCKS: Final = 5
"""With fewer a worker that does everything right may still be late, since its rows must be spread and certified first;
whoever has committed and does not reveal loses part of its bond."""


class JobRefused(DaemonError):
    """The job cannot be taken part in: it does not exist, or it is not what its record says."""


@dataclass(frozen=True, slots=True)
class JobSetup:
    """One job, checked."""

    chain_id: str
    job_id: int
    terms: JobTerms
    config: TrainingConfig
    corpus: Corpus
    genesis: SharedState


async def set_up_job(
    client: Client, job_id: int, data_folder: Path, log: FilteringBoundLogger, *, allow_short_phases: bool = True
) -> JobSetup:
    """Read the job, fetch its text into `data_folder`, and rebuild its genesis state.

    `allow_short_phases`: also for jobs that `check_phases` refuses; scorers have no bond at stake there.

    Raises: JobRefused when something is not what the chain says; NodeError while a node or provider does not answer.
    """
    job = await client.job(job_id)
    if job is None:
        raise JobRefused(f"there is no job {job_id} on this chain; outerstep job list shows those there are")
    if not allow_short_phases:
        check_phases(job_id, job.terms)
    path = await _fetch_text(client, job.terms, data_folder, log)
    try:
        config, corpus, genesis = await asyncio.to_thread(_build, job.terms, path)
    except TrainingError as error:
        raise JobRefused(f"job {job_id} cannot be trained: {error}") from error
    if genesis.root != job.terms.genesis_root:
        raise JobRefused(
            f"the genesis state built here has root {genesis.root.hex()[:16]}…, job {job_id} says "
            f"{job.terms.genesis_root.hex()[:16]}…; this machine runs another version of outerstep, or the job is wrong"
        )
    return JobSetup(await client.chain_id(), job_id, job.terms, config, corpus, genesis)


def check_phases(job_id: int, terms: JobTerms) -> None:
    """Whether a worker can be sure to commit and reveal in time; the job's owner chooses how long that takes.

    Raises: JobRefused.
    """
    for name, blocks, least in (
        ("commit_blocks", terms.commit_blocks, MIN_COMMIT_BLOCKS),
        ("reveal_blocks", terms.reveal_blocks, MIN_REVEAL_BLOCKS),
    ):
        if blocks < least:
            raise JobRefused(
                f"job {job_id} has {name} {blocks}; with less than {least} a worker may be late through no fault of "
                "its own, and loses part of its bond. To take part all the same, add --allow-short-phases"
            )


def _build(terms: JobTerms, path: Path) -> tuple[TrainingConfig, Corpus, SharedState]:
    config = TrainingConfig.from_manifest(terms.manifest)
    return config, Corpus.from_file(path), SharedState.genesis(config)


async def _fetch_text(client: Client, terms: JobTerms, folder: Path, log: FilteringBoundLogger) -> Path:
    path = folder / terms.data_root.hex()
    if path.exists() and await asyncio.to_thread(_has_root, path, terms.data_root):
        return path
    deal = await find_deal(client, terms.data_root)
    if deal is None:
        raise JobRefused(
            f"no storage deal holds the job's text (root {terms.data_root.hex()[:16]}…); ask its owner to store it"
        )
    log.info("fetching the text", deal=deal.id, bytes=deal.size)
    try:
        await fetch_file(client, deal, path)
    except StorageError as error:
        raise StoringFailed(f"the job's text cannot be fetched: {error}") from error
    if not await asyncio.to_thread(_has_root, path, terms.data_root):
        path.unlink(missing_ok=True)
        raise JobRefused("the text that was fetched is not the job's (its root differs); try again")
    return path


def _has_root(path: Path, root: bytes) -> bool:
    return FileTree.build(path).root == root
