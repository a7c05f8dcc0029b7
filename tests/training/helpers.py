"""A text and a model small enough for tests that train for real."""

import zlib
from functools import cache

import msgspec
import numpy as np

from training.aggregation import aggregate
from training.config import TrainingConfig
from training.corpus import Corpus
from training.fixed_point import Float32
from training.payload import compress
from training.state import SharedState
from training.trainer import Trainer

WORKER = b"w" * 20
SENTENCE = "the state of record is an integer and every node adds the same integers in the same order"


@cache
def tiny_corpus() -> Corpus:
    """40 kB of words in a fixed pseudo-random order, with enough structure to be learnt in a few steps."""
    words = SENTENCE.split()
    chosen = np.random.Generator(np.random.PCG64(7)).integers(0, len(words), size=9000)
    return Corpus(" ".join(words[index] for index in chosen).encode()[:40_000])


def tiny_config(**changes: object) -> TrainingConfig:
    """About 1,400 parameters (one short chunk), a few inner steps."""
    base = TrainingConfig(
        alphabet=tiny_corpus().alphabet,
        num_layers=1,
        num_heads=2,
        width=8,
        block_length=16,
        batch_size=4,
        inner_steps=3,
        total_rounds=4,
        inner_lr_ppm=10_000,
        final_lr_ppm=1_000,
        warmup_steps=2,
        top_k=512,
        outer_lr_milli=2_000,
    )
    return msgspec.structs.replace(base, **changes)


def random_update(num_parameters: int, seed: int, scale: float = 0.01) -> Float32:
    """A heavy-tailed update, float32 [P]."""
    values = np.random.Generator(np.random.PCG64(seed)).standard_normal(num_parameters)
    return (scale * values**3).astype(np.float32)


def random_payload(
    config: TrainingConfig, seed: int, *, worker: bytes = WORKER, scale: float = 0.01, round_index: int = 0
) -> bytes:
    """A valid payload of this worker on the genesis state."""
    update_P = random_update(config.num_parameters, seed, scale)
    return compress(config, update_P, worker=worker, base_round=-1, round_index=round_index)


def with_new_checksum(payload: bytes) -> bytes:
    """The same bytes with a CRC that matches them, so that a change reaches the checks behind it."""
    return payload[:-4] + zlib.crc32(payload[:-4]).to_bytes(4, "little")


def fresh_trainer(config: TrainingConfig, worker: bytes = WORKER) -> Trainer:
    return Trainer(config, tiny_corpus(), worker)


def settle(trainer: Trainer, shared: SharedState, round_index: int) -> SharedState:
    """Train and settle one round with this worker alone."""
    update = trainer.run_round(shared, round_index)
    trainer.accept(update)
    return aggregate(trainer.config, shared, round_index, [(trainer.worker, update.payload)]).state
