"""Canonical encoding: one byte string per value, and nothing but EncodingError for all others."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.encoding import EncodingError, decode, encode


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    count: int
    name: str
    data: bytes
    parts: tuple[int, ...]


SAMPLES = st.builds(
    Sample,
    count=st.integers(-(2**63), 2**64 - 1),
    name=st.text(max_size=10),
    data=st.binary(max_size=10),
    parts=st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple),
)


@given(SAMPLES)
def test_value_survives_the_round_trip(sample: Sample) -> None:
    assert decode(encode(sample), Sample) == sample


@given(st.binary(max_size=64))
def test_arbitrary_bytes_decode_to_their_own_value_or_are_refused(data: bytes) -> None:
    try:
        value = decode(data, Sample)
    except EncodingError:
        return
    assert encode(value) == data


@pytest.mark.parametrize(
    "values",
    [
        [True, "n", b"", []],
        [1.0, "n", b"", []],
        ["1", "n", b"", []],
        [1, "n", b"", [], 5],
        [1, "n", b""],
        [1, "n", "text", []],
        [None, "n", b"", []],
        {"count": 1, "name": "n", "data": b"", "parts": []},
    ],
)
def test_bool_float_text_and_wrong_shapes_are_not_integers_and_fields(values: object) -> None:
    with pytest.raises(EncodingError):
        decode(msgspec.msgpack.encode(values), Sample)


def test_longer_form_of_the_same_integer_is_refused() -> None:
    canonical = encode(Sample(1, "", b"", ()))
    assert canonical[1] == 1
    longer = canonical[:1] + b"\xcd\x00\x01" + canonical[2:]
    with pytest.raises(EncodingError, match="canonical"):
        decode(longer, Sample)


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(EncodingError):
        decode(encode(Sample(1, "", b"", ())) + b"\x00", Sample)


def test_deep_nesting_is_refused_without_a_crash() -> None:
    with pytest.raises(EncodingError):
        decode(b"\x91" * 100_000, Sample)


def test_integer_beyond_64_bits_cannot_be_encoded() -> None:
    with pytest.raises(EncodingError):
        encode(Sample(2**64, "", b"", ()))
