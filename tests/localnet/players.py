"""Workers of a test job, honest and hostile, each driven step by step through the client and the training library."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from abci_app.messages import AttestState, CreateJob, JobTerms, JoinJob, RegisterWorker, Transfer
from abci_app.records import Round, Submission
from da_layer.client import retrieve
from localnet.network import Localnet
from node import publishing
from node.client import Client
from node.intents import Intent
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import PrivateKey
from tests.training.helpers import random_update, tiny_config, tiny_corpus, with_new_checksum
from training import LocalUpdate, SharedState, Trainer, TrainingConfig, aggregate
from training.payload import HEADER_BYTES, compress

BOND: Final = 100 * MICRO_PER_TOKEN
REWARD: Final = 50 * MICRO_PER_TOKEN
BLOB_BLOCKS: Final = 1_000
CONFIG: Final = tiny_config(compressor="int8")


@dataclass(slots=True)
class Player:
    """One worker account at one node, with its trainer."""

    name: str
    client: Client
    key: PrivateKey
    trainer: Trainer
    shared: SharedState
    intents: dict[int, Intent] = field(default_factory=dict)

    async def join(self, job_id: int) -> None:
        message = JoinJob(job_id=job_id, genesis_root=SharedState.genesis(CONFIG).root)
        await self.client.send([RegisterWorker(bond=BOND), message])

    async def train(self, round_: Round) -> LocalUpdate:
        return await asyncio.to_thread(self.trainer.run_round, self.shared, round_.index)

    async def commit(self, round_: Round, update: LocalUpdate) -> None:
        self.intents[round_.index] = await publishing.make_intent(self.client, round_, update)
        await publishing.commit(self.client, self.intents[round_.index])

    async def reveal(self, round_: Round) -> None:
        expiry = await self.client.height() + BLOB_BLOCKS
        await publishing.reveal(self.client, self.intents[round_.index], expiry_height=expiry)

    async def attest(self, round_: Round, submissions: Sequence[Submission]) -> None:
        """Fetch the frozen set, compute the next state and attest its root."""
        updates = []
        for item in submissions:
            if item.worker in round_.included:
                blob = await self.client.blob(item.blob)
                services = await self.client.service_set()
                assert blob is not None
                assert services is not None
                payload = await retrieve(self.client.session, blob.header, services, timeout_s=20)
                updates.append((item.worker, payload))
        result = await asyncio.to_thread(aggregate, CONFIG, self.shared, round_.index, updates)
        await self.client.send(
            [
                AttestState(
                    job_id=round_.job_id,
                    round_index=round_.index,
                    state_root=result.state.root,
                    rejected=tuple(sorted(result.rejected)),
                )
            ]
        )
        self.shared = result.state


async def open_test_job(net: Localnet, *, rounds: int, min_workers: int, max_workers: int, blocks: int) -> int:
    """A job of the tiny model, paid by the faucet account. No text is stored: nobody here fetches it."""
    terms = JobTerms(
        manifest=CONFIG.to_manifest(),
        data_root=bytes(32),
        data_size=tiny_corpus().size_bytes,
        genesis_root=SharedState.genesis(CONFIG).root,
        num_rounds=rounds,
        min_workers=min_workers,
        max_workers=max_workers,
        reward_per_round=REWARD,
        max_samples=CONFIG.samples_per_round,
        train_blocks=10 * blocks,
        commit_blocks=10 * blocks,
        reveal_blocks=blocks,
        score_blocks=blocks,
        aggregate_blocks=blocks,
        scorers=(),
    )
    async with net.client(0, net.faucet) as client:
        result = await client.send([CreateJob(key=PrivateKey.generate().public_key, terms=terms)])
    return result.ids[0]


async def make_players(net: Localnet, names: Sequence[str], nodes: Sequence[int]) -> list[Player]:
    """Players with tokens, spread over `nodes`."""
    players = []
    for index, name in enumerate(names):
        key = PrivateKey.generate()
        client = net.client(nodes[index % len(nodes)], key)
        trainer = Trainer(CONFIG, tiny_corpus(), key.address)
        players.append(Player(name, client, key, trainer, SharedState.genesis(CONFIG)))
    async with net.client(nodes[0], net.faucet) as client:
        await client.send([Transfer(to=player.key.address, amount=2 * BOND) for player in players])
    return players


async def wait_for_phase(
    client: Client, job_id: int, round_index: int, phases: Sequence[str], push: Callable[[], Awaitable[object]]
) -> Round:
    """The round once it is in one of `phases` (or is no longer open); `push` makes the next block come."""
    while True:
        round_ = await client.round(job_id, round_index)
        if round_ is not None and (round_.phase in phases or round_.status != "open"):
            return round_
        await push()


def nan_update(update: LocalUpdate) -> LocalUpdate:
    """The same update with every value replaced by the bytes of a float32 NaN; header and checksum are right."""
    header, body = update.payload[:HEADER_BYTES], update.payload[HEADER_BYTES:-4]
    nans = np.full(len(body) // 4 + 1, np.nan, dtype="<f4").tobytes()[: len(body)]
    return replace(update, payload=with_new_checksum(header + nans + bytes(4)))


def misshapen_update(worker: bytes, update: LocalUpdate) -> LocalUpdate:
    """This worker's update of a model twice as wide."""
    wider: TrainingConfig = tiny_config(compressor="int8", width=2 * CONFIG.width)
    payload = compress(
        wider,
        random_update(wider.num_parameters, 1),
        worker=worker,
        base_round=update.base_round,
        round_index=update.round_index,
    )
    return replace(update, payload=payload)
