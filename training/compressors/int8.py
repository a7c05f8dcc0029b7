"""`int8`: blocks of 256 elements, one scale byte each, elements as signed bytes. Ratio to fp32: 3.98.

Body: one scale code per block, then one int8 per parameter; value = element x level(code), see `levels`.
Elements run from -127 to 127, and are all 0 in a block of code 0.
"""

from typing import Final

import numpy as np

from training.compressors.levels import LEVELS, ZERO_LEVEL, codes_for
from training.errors import InvalidPayload
from training.fixed_point import MAX_UPDATE, UPDATE_BITS, Float32, Int64

BLOCK: Final = 256
LARGEST: Final = 127


class Int8:
    """Blockwise eight-bit quantisation."""

    codec: int = 1

    def encode(self, values_P: Float32) -> bytes:
        num_blocks = -(-len(values_P) // BLOCK)
        padded = np.zeros(num_blocks * BLOCK, dtype=np.float64)
        padded[: len(values_P)] = values_P
        blocks = padded.reshape(num_blocks, BLOCK)
        codes = codes_for(np.abs(blocks).max(axis=1) / LARGEST, at_least=True)
        steps = LEVELS[codes] * 2.0**-UPDATE_BITS
        scaled = np.divide(blocks, steps[:, None], out=np.zeros_like(blocks), where=steps[:, None] > 0)
        elements = np.clip(np.rint(scaled), -LARGEST, LARGEST).astype(np.int8)
        return b"".join([codes.astype(np.uint8).tobytes(), elements.reshape(-1)[: len(values_P)].tobytes()])

    def decode(self, body: memoryview, num_parameters: int) -> Int64:
        num_blocks = -(-num_parameters // BLOCK)
        if len(body) != num_blocks + num_parameters:
            raise InvalidPayload(f"an int8 body for {num_parameters} parameters cannot have {len(body)} bytes")
        codes = np.frombuffer(body, dtype=np.uint8, count=num_blocks)
        elements = np.frombuffer(body, dtype=np.int8, offset=num_blocks)
        if elements.size and int(elements.min()) < -LARGEST:
            raise InvalidPayload("an element is -128, which no encoder writes")
        code_of_each = np.repeat(codes, BLOCK)[:num_parameters]
        if bool(np.any((code_of_each == ZERO_LEVEL) & (elements != 0))):
            raise InvalidPayload("a block without a scale holds elements that are not zero")
        # 127 < 2^7 and every level < 2^39, so the product stays below 2^46.
        values = elements.astype(np.int64) * LEVELS[code_of_each]
        if values.size and int(np.abs(values).max()) > MAX_UPDATE:
            raise InvalidPayload("a scale is too large: an element would exceed 128")
        return values

    def body_bounds(self, num_parameters: int) -> tuple[int, int]:
        size = -(-num_parameters // BLOCK) + num_parameters
        return size, size
