"""Numbers that are the same on every machine: integers with a power-of-two unit, and one rounding rule.

Parameters are int32 in units of 2^-24: +-128 with the resolution that float32 has near 1, so a checkpoint is as large
as a float32 one and a pre-norm transformer's weights (all far below 128) fit with room. Updates and momentum are int64
in units of 2^-32: the eight further bits keep what division by the number of workers and momentum would round away.

Bounds (all sums in int64, |x| < 2^63 = 9.2e18). One decoded update: |u| <= 2^39 (128.0). With at most 2^10 workers the
sum is <= 2^49 and the mean <= 2^39 again. Momentum m <- mu m + mean with mu <= 0.99 stays <= 100 x 2^39 < 2^45.7, and
mu (in thousandths) x m < 2^55.7. The step direction mean + mu m is < 2^45.7 too, and times a learning rate of at most
32,000 thousandths < 2^60.7.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.errors import DivergedError, StateOverflow

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]

PARAMETER_BITS: Final = 24
UPDATE_BITS: Final = 32
MAX_PARAMETER: Final = 2**31 - 1
"""Largest magnitude of a parameter, units of 2^-24; -2^31 is left out so that the range is symmetric."""
MAX_UPDATE: Final = 2**39
"""Largest magnitude of one element of one worker's update, units of 2^-32."""
MAX_MOMENTUM: Final = 101 * MAX_UPDATE
"""Largest magnitude of one element of the outer momentum, 2^-32; one more than the bound above, for rounding."""
MAX_LOCAL_UPDATE: Final = 64.0
"""Largest magnitude that a worker encodes; half of what a decoder takes, so that no rounding crosses the bound."""
MAX_WORKERS: Final = 1024
MILLI: Final = 1000


def divide_rounding(values: Int64, divisor: int) -> Int64:
    """The nearest integer to values / divisor, halves upwards (towards plus infinity): the one rounding rule.

    Needs divisor > 0 and |values| + divisor/2 < 2^63.
    """
    return (values + divisor // 2) // divisor


def parameters_to_float(parameters_P: Int32) -> Float32:
    """int32 in units of 2^-24 -> float32: nearest, then an exact scaling; the same bits on every machine."""
    return parameters_P.astype(np.float32) * np.float32(2.0**-PARAMETER_BITS)


def updates_to_float(updates_P: Int64) -> Float32:
    """int64 in units of 2^-32 -> float32."""
    return (updates_P.astype(np.float64) * 2.0**-UPDATE_BITS).astype(np.float32)


def check_finite_update(values_P: Float32) -> None:
    """Raises: DivergedError when an element is not finite or above MAX_LOCAL_UPDATE in magnitude."""
    largest = float(np.max(np.abs(values_P), initial=0.0))
    if not largest <= MAX_LOCAL_UPDATE:  # also true for NaN
        raise DivergedError(
            f"the update's largest element is {largest}; training has diverged (limit {MAX_LOCAL_UPDATE})"
        )


def to_parameters(values_P: Int64) -> Int32:
    """int64 -> int32, both in units of 2^-24.

    Raises: StateOverflow when an element is out of range. Nothing is clamped: a model so far off is better not settled.
    """
    if values_P.size and int(np.abs(values_P).max()) > MAX_PARAMETER:
        index = int(np.abs(values_P).argmax())
        raise StateOverflow(f"parameter {index} would be {int(values_P[index]) / 2**PARAMETER_BITS}; the limit is 128")
    return values_P.astype(np.int32)
