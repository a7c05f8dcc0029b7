"""One contract for all compressors, and what each adds to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.helpers import random_update
from training.compressors import Compressor, Int8, Raw, TopK
from training.compressors.levels import LEVELS, codes_for
from training.compressors.rice import decode_rice, encode_rice
from training.config import CHUNK
from training.errors import InvalidPayload
from training.fixed_point import MAX_LOCAL_UPDATE, MAX_UPDATE, Float32, Int64, updates_to_float

COMPRESSORS: list[Compressor] = [Raw(), Int8(), TopK(74), TopK(1), TopK(4096)]
SIZES = [1, 2, 255, 256, 257, 4095, 4096, 4097, 20_000]


def decoded(compressor: Compressor, values_P: Float32) -> Int64:
    return compressor.decode(memoryview(compressor.encode(values_P)), len(values_P))


class CompressorContract:
    @pytest.mark.parametrize("num_parameters", SIZES)
    def test_every_size_decodes_within_its_bounds(self, compressor: Compressor, num_parameters: int) -> None:
        body = compressor.encode(random_update(num_parameters, 1))
        smallest, largest = compressor.body_bounds(num_parameters)
        assert smallest <= len(body) <= largest
        values = compressor.decode(memoryview(body), num_parameters)
        assert values.shape == (num_parameters,)
        assert values.dtype == np.int64

    def test_zeros_stay_zeros(self, compressor: Compressor) -> None:
        assert not decoded(compressor, np.zeros(5000, dtype=np.float32)).any()

    @pytest.mark.parametrize("scale", [1e-9, 1e-4, 1.0, MAX_LOCAL_UPDATE])
    def test_extreme_magnitudes_stay_within_the_bound_and_keep_their_sign(
        self, compressor: Compressor, scale: float
    ) -> None:
        values_P = np.where(np.arange(5000) % 3 == 0, scale, -scale).astype(np.float32)
        result = decoded(compressor, values_P)
        assert int(np.abs(result).max()) <= MAX_UPDATE
        assert (np.sign(result) * np.sign(values_P) >= 0).all()

    def test_lengths_off_by_one_are_refused(self, compressor: Compressor) -> None:
        body = compressor.encode(random_update(5000, 3))
        for wrong in (body[:-1], body + b"\x00", b""):
            with pytest.raises(InvalidPayload):
                compressor.decode(memoryview(wrong), 5000)
        with pytest.raises(InvalidPayload):
            compressor.decode(memoryview(body), 9000)

    def make(self) -> Compressor:
        raise NotImplementedError

    @pytest.fixture
    def compressor(self) -> Compressor:
        return self.make()


class TestRaw(CompressorContract):
    def make(self) -> Compressor:
        return Raw()

    def test_error_is_half_a_parameter_unit(self) -> None:
        values_P = random_update(5000, 4)
        assert np.abs(updates_to_float(decoded(Raw(), values_P)) - values_P).max() <= 2.0**-25 * 1.01


class TestInt8(CompressorContract):
    def make(self) -> Compressor:
        return Int8()

    def test_error_is_half_a_step_of_its_block(self) -> None:
        values_P = random_update(5120, 5)
        error = np.abs(updates_to_float(decoded(Int8(), values_P)) - values_P).reshape(-1, 256).max(axis=1)
        largest = np.abs(values_P).reshape(-1, 256).max(axis=1)
        assert (error <= largest / 127 * 2 ** (1 / 8) / 2 * 1.001).all()

    def test_minus_128_nonzero_blocks_without_scale_and_huge_scales_are_refused(self) -> None:
        for body in (b"\xc8\x80", b"\x00\x01", b"\xff\x7f"):
            with pytest.raises(InvalidPayload):
                Int8().decode(memoryview(body), 1)

    def test_ratio_to_fp32_is_nearly_four(self) -> None:
        assert 400_000 / len(Int8().encode(random_update(100_000, 6))) > 3.9


class TestTopK(CompressorContract):
    def make(self) -> Compressor:
        return TopK(74)

    def test_exactly_the_k_largest_of_each_chunk_are_sent_with_their_sign(self) -> None:
        values_P = random_update(3 * CHUNK, 7)
        result = decoded(TopK(50), values_P)
        for start in range(0, len(values_P), CHUNK):
            part, sent = values_P[start : start + CHUNK], result[start : start + CHUNK]
            expected = np.sort(np.argsort(np.abs(part))[-50:])
            assert np.array_equal(np.flatnonzero(sent), expected)
            assert np.array_equal(np.sign(sent[expected]), np.sign(part[expected]))
            mean = np.abs(part[expected]).mean()
            assert abs(np.log2(np.abs(sent[expected[0]]) * 2.0**-32 / mean)) <= 1 / 16 + 1e-6

    def test_what_was_decoded_encodes_to_the_same_bytes(self) -> None:
        body = TopK(74).encode(random_update(9000, 2))
        values = TopK(74).decode(memoryview(body), 9000)
        assert TopK(74).encode(updates_to_float(values)) == body

    def test_a_short_last_chunk_sends_its_share(self) -> None:
        result = decoded(TopK(64), random_update(CHUNK + 640, 8))
        assert np.count_nonzero(result[CHUNK:]) == 10

    @pytest.mark.parametrize("top_k", [1, 2, 1000, 4095, 4096])
    def test_every_k_works(self, top_k: int) -> None:
        values_P = random_update(6000, 9)
        assert np.count_nonzero(decoded(TopK(top_k), values_P)) == top_k + -(-top_k * 1904 // CHUNK)

    def test_indices_outside_a_short_chunk_are_refused(self) -> None:
        far = np.array([90], dtype=np.int64)
        good = TopK(1).encode(np.eye(1, 91, 90, dtype=np.float32)[0])
        assert good.endswith(encode_rice(far, 11))
        with pytest.raises(InvalidPayload, match="outside"):
            TopK(1).decode(memoryview(good), 90)

    def test_padding_that_is_not_zero_is_refused(self) -> None:
        body = bytearray(TopK(1).encode(random_update(91, 11)))
        body[1] |= 1  # the byte of one sign bit
        with pytest.raises(InvalidPayload, match="padding"):
            TopK(1).decode(memoryview(bytes(body)), 91)

    def test_real_bytes_are_207_times_fewer_for_the_published_recipe(self) -> None:
        values_P = random_update(26 * CHUNK, 12)
        assert 4 * len(values_P) / len(TopK(74).encode(values_P)) > 205


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(COMPRESSORS), st.sampled_from([1, 30, 300]), st.data())
def test_arbitrary_bodies_decode_within_bounds_or_are_refused(
    compressor: Compressor, num_parameters: int, data: st.DataObject
) -> None:
    body = data.draw(st.binary(max_size=compressor.body_bounds(num_parameters)[1] + 2))
    try:
        values = compressor.decode(memoryview(body), num_parameters)
    except InvalidPayload:
        return
    assert values.shape == (num_parameters,)
    assert int(np.abs(values).max()) <= MAX_UPDATE


def test_levels_are_the_exact_integer_grid() -> None:
    assert LEVELS[200] == 2**32
    assert LEVELS[192] == 2**31
    assert (np.diff(LEVELS) > 0).all()
    assert LEVELS[255] < MAX_UPDATE
    assert int(LEVELS[201]) ** 8 <= 2**257 < (int(LEVELS[201]) + 1) ** 8


def test_codes_are_nearest_or_next_above() -> None:
    values = np.array([0.0, 1e-30, 1.0, 1.05, 1e9])
    assert codes_for(values, at_least=False).tolist() == [0, 0, 200, 201, 255]
    assert codes_for(values, at_least=True).tolist() == [0, 0, 200, 201, 255]


@given(st.lists(st.integers(0, 4095), max_size=60), st.integers(0, 12))
def test_rice_coding_round_trips(values: list[int], shift: int) -> None:
    array = np.array(values, dtype=np.int64)
    assert decode_rice(memoryview(encode_rice(array, shift)), len(values), shift).tolist() == values


@given(st.binary(max_size=12), st.integers(0, 20), st.integers(0, 6))
def test_rice_decoding_takes_one_byte_form_only(data: bytes, count: int, shift: int) -> None:
    try:
        values = decode_rice(memoryview(data), count, shift)
    except InvalidPayload:
        return
    assert encode_rice(values, shift) == data
