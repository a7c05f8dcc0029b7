"""The grid of scales that int8 and top-k share: level(c) = 2^((c - 200) / 8), one byte, decoded without floats."""

import math
from typing import Final

import numpy as np

from training.fixed_point import UPDATE_BITS, Int64

ZERO_LEVEL: Final = 0
"""Code of a block that is all zero."""
_STEPS_PER_OCTAVE: Final = 8
_UNIT_CODE: Final = 200
"""The code whose level is 1.0."""


def _level(code: int) -> int:
    """floor(2^32 x 2^((code - 200) / 8)), exactly: the integer eighth root of a power of two."""
    power = 2 ** (_STEPS_PER_OCTAVE * UPDATE_BITS + code - _UNIT_CODE)
    return math.isqrt(math.isqrt(math.isqrt(power)))


LEVELS: Final[Int64] = np.array([0] + [_level(code) for code in range(1, 256)], dtype=np.int64)
"""Code -> level in units of 2^-32: 0 for code 0, else from 2^-24.9 to 2^6.9 (below 128, the bound of one update)."""


def codes_for(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *, at_least: bool) -> Int64:
    """The code of each non-negative value: the nearest level, or the next one up for `at_least`; 0 for values too
    small for the grid. Values above it get its largest code."""
    position = np.full(values.shape, -np.inf)
    np.log2(values, out=position, where=values > 0)
    position = position * _STEPS_PER_OCTAVE + _UNIT_CODE
    rounded = np.ceil(position) if at_least else np.rint(position)
    return np.where(rounded < 1, ZERO_LEVEL, np.clip(rounded, 1, 255)).astype(np.int64)
