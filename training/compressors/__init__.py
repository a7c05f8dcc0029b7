"""Compressors behind one interface: float32 [P] -> body bytes -> int64 [P] in units of 2^-32.

Encoding happens at one worker and may use floats; decoding happens everywhere and uses integers alone. Every body has
one byte form: `decode` refuses what `encode` would not write for the decoded structure.
"""

from typing import Protocol

from training.compressors.int8 import Int8
from training.compressors.raw import Raw
from training.compressors.topk import TopK
from training.config import TrainingConfig
from training.fixed_point import Float32, Int64


class Compressor(Protocol):
    """One way to write an update. Error feedback is the worker's business, not the compressor's."""

    codec: int
    """The byte that names it in a payload."""

    def encode(self, values_P: Float32) -> bytes:
        """The body for finite values of magnitude at most `fixed_point.MAX_LOCAL_UPDATE`."""
        ...

    def decode(self, body: memoryview, num_parameters: int) -> Int64:
        """int64 [P] in units of 2^-32, magnitudes at most `fixed_point.MAX_UPDATE`.

        Raises: InvalidPayload for every other byte string.
        """
        ...

    def body_bounds(self, num_parameters: int) -> tuple[int, int]:
        """(smallest, largest) length of a valid body, so that others are refused before anything is allocated."""
        ...


def compressor_for(config: TrainingConfig) -> Compressor:
    """The compressor that a job uses."""
    if config.compressor == "topk":
        return TopK(config.top_k)
    return Int8() if config.compressor == "int8" else Raw()


__all__ = ["Compressor", "Int8", "Raw", "TopK", "compressor_for"]
