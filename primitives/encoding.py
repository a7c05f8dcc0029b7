"""Canonical bytes for structures: msgpack arrays, one byte string per value.

Structures are msgspec structs with ``array_like=True``; fields stand in their declared order. Decoding re-encodes and
compares, so a longer integer form, an extra field or trailing bytes are refused, and a hash over the bytes is a hash
over the value.
"""

from typing import Generic, TypeVar

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


class OwnDecoder(Generic[T]):
    """Decodes bytes that `encode` has made and nobody else could change, such as records of the state.

    Half the work of `decode`, which must be used for everything that comes from outside.
    """

    def __init__(self, wanted: type[T]) -> None:
        self._wanted = wanted
        self._decode = msgspec.msgpack.Decoder(wanted).decode

    def __call__(self, data: bytes) -> T:
        """Raises: EncodingError when the bytes are not even a value of the wanted type."""
        try:
            return self._decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise EncodingError(f"not a {self._wanted.__name__}: {error}") from error


def decode(data: bytes | memoryview, wanted: type[T]) -> T:
    """The value of type `wanted` whose canonical encoding is exactly `data`.

    Raises: EncodingError for every other byte string.
    """
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.msgpack.Decoder(wanted)
    try:
        value = decoder.decode(data)
        canonical = _encoder.encode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise EncodingError(f"not a {getattr(wanted, '__name__', wanted)}: {error}") from error
    if canonical != data:
        raise EncodingError("not the canonical encoding of its value")
    return value  # type: ignore[return-value]
