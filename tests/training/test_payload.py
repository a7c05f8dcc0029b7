"""The payload's bytes: bound to job, base, round and worker; hostile bytes meet one error, in bounded memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.helpers import WORKER, random_payload, random_update, tiny_config, with_new_checksum
from training.errors import DivergedError, InvalidPayload
from training.fixed_point import MAX_UPDATE
from training.payload import HEADER_BYTES, compress, decompress, fp32_bytes, max_payload_bytes

CONFIGS = {name: tiny_config(compressor=name) for name in ("none", "int8", "topk")}
PAYLOADS = {name: random_payload(config, 1) for name, config in CONFIGS.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_payload_round_trips_under_its_own_job_base_round_and_worker(name: str) -> None:
    values_P = decompress(CONFIGS[name], PAYLOADS[name], worker=WORKER, base_round=-1, round_index=0)
    assert values_P.shape == (CONFIGS[name].num_parameters,)
    sent = np.flatnonzero(values_P)
    original_P = random_update(CONFIGS[name].num_parameters, 1)
    assert (np.sign(values_P[sent]) == np.sign(original_P[sent])).all()
    assert len(PAYLOADS[name]) <= max_payload_bytes(CONFIGS[name])


def test_golden_payload_bytes() -> None:
    config = tiny_config(alphabet=b"ab", width=2, num_heads=1, block_length=2, top_k=256)
    places = np.arange(config.num_parameters)
    update_P = (places * (-1.0) ** places / 64).astype(np.float32)
    payload = compress(config, update_P, worker=bytes(range(20)), base_round=3, round_index=5)
    assert (
        payload.hex()
        == (
            "4f5355500202" + "0000" + "1d27dd4cf3c7c95074e8cc5bbad101ae"  # magic, version, codec; zero; configuration
            "03000000" + "05000000" + "3e00000000000000"  # base round, round, parameters
            "000102030405060708090a0b0c0d0e0f10111213"  # worker
            "c7504000fe00" + "fe83ec87"  # body, checksum
        )
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_another_base_round_or_job_is_refused(name: str) -> None:
    config, payload = CONFIGS[name], PAYLOADS[name]
    for base_round, round_index in ((0, 1), (-1, 1), (0, 0)):
        with pytest.raises(InvalidPayload, match="round"):
            decompress(config, payload, worker=WORKER, base_round=base_round, round_index=round_index)
    with pytest.raises(InvalidPayload, match="another configuration"):
        decompress(tiny_config(compressor=name, seed=9), payload, worker=WORKER, base_round=-1, round_index=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_payload_of_another_worker_is_refused(name: str) -> None:
    config = CONFIGS[name]
    for other in (b"v" * 20, WORKER[:-1] + b"x", bytes(20)):
        with pytest.raises(InvalidPayload, match="worker"):
            decompress(config, PAYLOADS[name], worker=other, base_round=-1, round_index=0)
        assert random_payload(config, 1, worker=other) != PAYLOADS[name]


@pytest.mark.parametrize("worker", [b"", WORKER[:-1], WORKER + b"w"])
def test_an_address_of_another_length_is_refused_and_never_padded_or_cut(worker: bytes) -> None:
    with pytest.raises(ValueError, match="20 bytes"):
        random_payload(CONFIGS["none"], 1, worker=worker)
    with pytest.raises(ValueError, match="20 bytes"):
        decompress(CONFIGS["none"], PAYLOADS["none"], worker=worker, base_round=-1, round_index=0)


def test_the_largest_payload_has_a_header_of_sixty_bytes_a_body_and_a_checksum_of_four() -> None:
    num_parameters = CONFIGS["none"].num_parameters
    assert max_payload_bytes(CONFIGS["none"]) == len(PAYLOADS["none"]) == 60 + 4 * num_parameters + 4
    num_scales = -(-num_parameters // 256)
    assert max_payload_bytes(CONFIGS["int8"]) == len(PAYLOADS["int8"]) == 60 + num_scales + num_parameters + 4


def test_a_payload_of_another_compressor_is_refused() -> None:
    for name, payload in PAYLOADS.items():
        for other in set(CONFIGS) - {name}:
            with pytest.raises(InvalidPayload):
                decompress(CONFIGS[other], payload, worker=WORKER, base_round=-1, round_index=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_flipped_bit_of_the_header_is_refused_even_with_a_matching_checksum(name: str) -> None:
    for bit in range(HEADER_BYTES * 8):
        changed = bytearray(PAYLOADS[name])
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidPayload):
            decompress(CONFIGS[name], with_new_checksum(bytes(changed)), worker=WORKER, base_round=-1, round_index=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_cut_and_lengthened_payloads_are_refused(name: str) -> None:
    payload = PAYLOADS[name]
    for wrong in (
        b"",
        payload[:3],
        payload[: HEADER_BYTES + 4],
        payload[:-5],
        payload + b"\x00",
        payload[:-4] + b"\x00" + payload[-4:],
    ):
        for candidate in (wrong, with_new_checksum(wrong) if len(wrong) > 4 else wrong):
            with pytest.raises(InvalidPayload):
                decompress(CONFIGS[name], candidate, worker=WORKER, base_round=-1, round_index=0)


def test_damage_is_found_by_the_checksum() -> None:
    damaged = bytearray(PAYLOADS["none"])
    damaged[100] ^= 4
    with pytest.raises(InvalidPayload, match="checksum"):
        decompress(CONFIGS["none"], bytes(damaged), worker=WORKER, base_round=-1, round_index=0)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_mutated_payloads_decode_within_bounds_or_are_refused(name: str, data: st.DataObject) -> None:
    changed = bytearray(PAYLOADS[name])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(changed) - 5))
        changed[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    candidate = with_new_checksum(bytes(changed[: len(changed) - cut]))
    try:
        values_P = decompress(CONFIGS[name], candidate, worker=WORKER, base_round=-1, round_index=0)
    except InvalidPayload:
        return
    assert values_P.shape == (CONFIGS[name].num_parameters,)
    assert int(np.abs(values_P).max()) <= MAX_UPDATE


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(CONFIGS)), st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(name: str, data: bytes) -> None:
    for candidate in (data, with_new_checksum(PAYLOADS[name][:HEADER_BYTES] + data + b"0000")):
        try:
            decompress(CONFIGS[name], candidate, worker=WORKER, base_round=-1, round_index=0)
        except InvalidPayload:
            continue
        assert name == "topk"  # only a whole body may pass, which 400 bytes can be for top-k alone


def test_an_oversized_payload_costs_no_memory() -> None:
    config = CONFIGS["topk"]
    payload = PAYLOADS["topk"][:HEADER_BYTES] + bytes(20_000_000)
    tracemalloc.start()
    with pytest.raises(InvalidPayload, match="bytes"):
        decompress(config, payload, worker=WORKER, base_round=-1, round_index=0)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 100_000


def test_decoding_memory_is_bounded_by_the_model() -> None:
    config = CONFIGS["topk"]
    body_room = max_payload_bytes(config) - HEADER_BYTES - 4
    hostile = with_new_checksum(PAYLOADS["topk"][:HEADER_BYTES] + b"\xff" * body_room + b"0000")
    tracemalloc.start()
    with pytest.raises(InvalidPayload):
        decompress(config, hostile, worker=WORKER, base_round=-1, round_index=0)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 100 * fp32_bytes(config)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 65.0])
def test_updates_that_are_not_finite_or_far_too_large_are_refused_at_the_worker(bad: float) -> None:
    for config in CONFIGS.values():
        update_P = random_update(config.num_parameters, 1)
        update_P[17] = bad
        with pytest.raises(DivergedError):
            compress(config, update_P, worker=WORKER, base_round=-1, round_index=0)
