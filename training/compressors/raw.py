"""`none`: every element as int32 in units of 2^-24, the resolution of the parameters themselves. 4 bytes each."""

from typing import Final

import numpy as np

from training.errors import InvalidPayload
from training.fixed_point import PARAMETER_BITS, UPDATE_BITS, Float32, Int64

_SHIFT: Final = UPDATE_BITS - PARAMETER_BITS


class Raw:
    """No compression, for comparison and for tests of the rest of the path."""

    codec: int = 0

    def encode(self, values_P: Float32) -> bytes:
        return np.rint(values_P.astype(np.float64) * 2.0**PARAMETER_BITS).astype("<i4").tobytes()

    def decode(self, body: memoryview, num_parameters: int) -> Int64:
        # |int32| <= 2^31, shifted by 8 bits: at most 2^39, the bound of one update.
        if len(body) != 4 * num_parameters:
            raise InvalidPayload(f"a body of {len(body)} bytes cannot hold {num_parameters} elements of 4 bytes")
        return np.frombuffer(body, dtype="<i4").astype(np.int64) << _SHIFT

    def body_bounds(self, num_parameters: int) -> tuple[int, int]:
        return 4 * num_parameters, 4 * num_parameters
