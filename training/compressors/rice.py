"""Rice coding of many small non-negative integers at once, vectorised: quotients in unary, remainders in plain bits.

The two parts stand apart (remainders first), so that both are packed and unpacked by array operations. A quotient q is
q ones and a zero. Bits fill bytes from the top; the bits that pad the last byte of a part are zero.
"""

import numpy as np
from numpy.typing import NDArray

from training.errors import InvalidPayload
from training.fixed_point import Int64


def packed_bytes(num_bits: int) -> int:
    return -(-num_bits // 8)


def encode_rice(values: Int64, shift: int) -> bytes:
    """Remainders (value mod 2^shift, `shift` bits each), then quotients (value >> shift) in unary."""
    places = np.arange(shift - 1, -1, -1)
    remainders = ((values[:, None] >> places) & 1).astype(np.uint8)
    ends = np.cumsum((values >> shift) + 1) - 1
    unary = np.ones(int(ends[-1]) + 1 if len(ends) else 0, dtype=np.uint8)
    unary[ends] = 0
    return np.packbits(remainders).tobytes() + np.packbits(unary).tobytes()


def decode_rice(data: memoryview, count: int, shift: int) -> Int64:
    """The `count` values whose coding is exactly `data`.

    Raises: InvalidPayload when it is cut short, has bits or bytes left over, or padding that is not zero.
    """
    num_remainder = packed_bytes(count * shift)
    if len(data) < num_remainder:
        raise InvalidPayload("the index remainders are cut short")
    remainder_bits = _unpack(data[:num_remainder], count * shift).reshape(count, shift).astype(np.int64)
    remainders = remainder_bits @ (np.int64(1) << np.arange(shift - 1, -1, -1, dtype=np.int64))
    return (_decode_unary(data[num_remainder:], count) << shift) + remainders


def _decode_unary(data: memoryview, count: int) -> Int64:
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    ends = np.flatnonzero(bits == 0)[:count]
    used = int(ends[-1]) + 1 if len(ends) else 0
    if len(ends) < count or packed_bytes(used) != len(data):
        raise InvalidPayload("the index quotients are cut short, or bytes follow them")
    if bool(bits[used:].any()):
        raise InvalidPayload("padding after the index quotients is not zero")
    return np.diff(ends, prepend=-1).astype(np.int64) - 1


def _unpack(data: memoryview, num_bits: int) -> NDArray[np.uint8]:
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    if bool(bits[num_bits:].any()):
        raise InvalidPayload("padding bits are not zero")
    return bits[:num_bits]


def unpack_bits(data: memoryview, num_bits: int) -> NDArray[np.uint8]:
    """The first `num_bits` bits of `data`, which has exactly the bytes for them.

    Raises: InvalidPayload when the length is off or the padding is not zero.
    """
    if len(data) != packed_bytes(num_bits):
        raise InvalidPayload(f"{len(data)} bytes cannot be {num_bits} bits")
    return _unpack(data, num_bits)
