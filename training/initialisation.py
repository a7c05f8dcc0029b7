"""Genesis parameters from the seed, in integers alone: equal on every machine, whatever its libraries and threads."""

import math
from typing import Final

import numpy as np

from primitives.encoding import encode
from primitives.hashing import tagged_hash
from training.config import TrainingConfig
from training.fixed_point import PARAMETER_BITS, Int32

ONE: Final = 1 << PARAMETER_BITS
EMBEDDING_BOUND: Final = ONE // 20
"""Embeddings are uniform in +-0.05."""


def philox(purpose: str, *parts: object) -> np.random.Philox:
    """A counter-based generator that is a pure function of its arguments.

    Only its raw 64-bit words are used: those are fixed by the algorithm, unlike numpy's derived distributions.
    """
    key = tagged_hash(f"outerstep/{purpose}/1", encode(list(parts)))
    return np.random.Philox(key=int.from_bytes(key[:16], "little"))


def genesis_parameters(config: TrainingConfig) -> Int32:
    """int32 [P] in units of 2^-24: gains 1, matrices uniform in +-1/sqrt(inputs), those that feed the residual
    stream narrower by sqrt(2 layers), embeddings uniform in +-0.05."""
    parts = [_one_parameter(config, name, shape) for name, shape in config.layout]
    return np.concatenate(parts)


def _one_parameter(config: TrainingConfig, name: str, shape: tuple[int, ...]) -> Int32:
    count = math.prod(shape)
    if len(shape) == 1:
        return np.full(count, ONE, dtype=np.int32)
    if "embedding" in name:
        bound = EMBEDDING_BOUND
    else:
        narrowing = 2 * config.num_layers if name.endswith("_out.weight") else 1
        bound = math.isqrt(ONE * ONE // (shape[1] * narrowing))
    words = philox("training-genesis", config.hash, name).random_raw(count)
    # The top 32 bits times the number of values fits 64 bits, and its own top half is uniform in 0 .. 2 bound.
    scaled = ((words >> np.uint64(32)) * np.uint64(2 * bound + 1)) >> np.uint64(32)
    return (scaled.astype(np.int64) - bound).astype(np.int32)
