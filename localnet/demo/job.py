"""Before the training: the text, the accounts and their money, the data set in storage, the job on chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abci_app.messages import CreateJob, JobTerms, Transfer
from abci_app.records import Deal
from localnet.network import Localnet
from node.client import Client
from node.storing import store_file
from primitives.amounts import MICRO_PER_TOKEN
from primitives.hashing import sha256
from primitives.keys import PrivateKey
from training import Corpus, SharedState, TrainingConfig, standard_library_text

TEXT_BYTES: Final = 4 * 1024 * 1024
"""How much of the standard library's source text is taken."""
OWNER_TOKENS: Final = 50_000
WORKER_TOKENS: Final = 1_000
WORKER_BOND: Final = 100 * MICRO_PER_TOKEN
REWARD_PER_ROUND: Final = 400 * MICRO_PER_TOKEN
DATA_REPLICAS: Final = 2
DATA_BLOCKS: Final = 20_000
PHASE_BLOCKS: Final = 600
"""Generous: a phase ends early once all who are expected have acted."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job that is ready for its workers."""

    id: int
    owner: PrivateKey
    workers: tuple[PrivateKey, ...]
    config: TrainingConfig
    genesis: SharedState
    corpus: Corpus
    text: Path
    data_deal: Deal


def take_text(source: Path | None, target: Path) -> Corpus:
    """Copy the text of `source`, or of the standard library, to `target`.

    Raises: CorpusError (too short), OSError (not readable, not writable).
    """
    data = standard_library_text(TEXT_BYTES) if source is None else source.read_bytes()
    corpus = Corpus(data)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return corpus


async def fund(net: Localnet, owner: PrivateKey, workers: Sequence[PrivateKey]) -> None:
    """Give the owner and every worker tokens from the account that genesis filled."""
    gifts = [Transfer(to=owner.address, amount=OWNER_TOKENS * MICRO_PER_TOKEN)]
    gifts += [Transfer(to=worker.address, amount=WORKER_TOKENS * MICRO_PER_TOKEN) for worker in workers]
    async with net.client(0, net.faucet) as client:
        await client.send(gifts)


async def open_job(
    net: Localnet, owner: PrivateKey, workers: Sequence[PrivateKey], *, text: Path, corpus: Corpus, rounds: int
) -> DemoJob:
    """Store the text, and create the job that names its root and pays for `rounds` rounds."""
    config = TrainingConfig.demo(corpus, rounds)
    genesis = SharedState.genesis(config)
    async with net.client(0, owner) as client:
        deal = await store_file(
            client,
            text,
            tier="hot",
            replicas=min(DATA_REPLICAS, len(net.nodes)),
            duration=DATA_BLOCKS,
            series="demo/data",
            journal=text.parent / "journal",
        )
        job_id = await _create(client, _terms(config, deal, genesis.root, rounds=rounds, workers=len(workers)))
    return DemoJob(job_id, owner, tuple(workers), config, genesis, corpus, text, deal)


def _terms(config: TrainingConfig, data: Deal, genesis_root: bytes, *, rounds: int, workers: int) -> JobTerms:
    return JobTerms(
        manifest=config.to_manifest(),
        data_root=data.root,
        data_size=data.size,
        genesis_root=genesis_root,
        num_rounds=rounds,
        min_workers=workers,
        max_workers=workers,
        reward_per_round=REWARD_PER_ROUND,
        max_samples=config.samples_per_round,
        train_blocks=PHASE_BLOCKS,
        commit_blocks=PHASE_BLOCKS,
        reveal_blocks=PHASE_BLOCKS,
        score_blocks=PHASE_BLOCKS,
        aggregate_blocks=PHASE_BLOCKS,
        scorers=(),
    )


async def _create(client: Client, terms: JobTerms) -> int:
    result = await client.send([CreateJob(key=sha256(terms.manifest), terms=terms)])
    return result.ids[0]
