"""Canonical bytes for structures: msgpack arrays, one byte string per value.

Structures are msgspec structs with ``array_like=True``; fields stand in their declared order. Decoding re-encodes and
compares, so a longer integer form, an extra field or trailing bytes are refused, and a hash over the bytes is a hash
over the value.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[object, msgspec.msgpack.Decoder[object]] = {}


class EncodingError(ValueError):
    """The bytes are not the canonical encoding of a value of the wanted type."""


def encode(value: object) -> bytes:
    """The canonical bytes of `value`.

    Raises: EncodingError when an integer does not fit 64 bits or the type cannot be encoded.
    """
    try:
        return _encoder.encode(value)
    except (OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise EncodingError(f"cannot encode: {error}") from error


def decode_own(data: bytes, wanted: type[T]) -> T:
    """The value behind bytes that `encode` has made and nobody else could change, such as a record of the state.

    Half the work of `decode`, which must be used for everything that comes from outside.
    Raises: EncodingError when the bytes are not even a value of type `wanted`.
    """
    try:
        return _decoder(wanted).decode(data)  # type: ignore[return-value]
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise EncodingError(f"not a {getattr(wanted, '__name__', wanted)}: {error}") from error


def decode(data: bytes | memoryview, wanted: type[T]) -> T:
    """The value of type `wanted` whose canonical encoding is exactly `data`.

    Raises: EncodingError for every other byte string.
    """
    try:
        value = _decoder(wanted).decode(data)
        canonical = _encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise EncodingError(f"not a {getattr(wanted, '__name__', wanted)}: {error}") from error
    if canonical != data:
        raise EncodingError("not the canonical encoding of its value")
    return value  # type: ignore[return-value]


def _decoder(wanted: object) -> msgspec.msgpack.Decoder[object]:
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.msgpack.Decoder(wanted)
    return decoder
