"""The outer step: one result for one set of updates, arithmetic by a stated rule, hostile updates kept out."""

import random

import numpy as np
import pytest
import torch

from tests.training.helpers import random_payload, random_update, tiny_config
from training.aggregation import aggregate, norm_of
from training.config import TrainingConfig
from training.errors import EmptyRound, StateError, StateOverflow
from training.fixed_point import MAX_UPDATE, Int64, divide_rounding
from training.payload import compress, decompress
from training.state import SharedState

NESTEROV = {"outer_optimizer": "nesterov", "momentum_milli": 900, "outer_lr_milli": 700}


def worker(index: int) -> bytes:
    return index.to_bytes(20, "big")


def decoded(config: TrainingConfig, update: tuple[bytes, bytes]) -> Int64:
    """What (worker, payload) of round 0 says."""
    return decompress(config, update[1], worker=update[0], base_round=-1, round_index=0)


@pytest.mark.parametrize("outer", [{}, NESTEROV])
@pytest.mark.parametrize("compressor", ["int8", "topk"])
def test_one_root_over_forty_orders_and_several_thread_counts(compressor: str, outer: dict[str, object]) -> None:
    config = tiny_config(compressor=compressor, **outer)
    genesis = SharedState.genesis(config)
    updates = [
        (worker(index), random_payload(config, index, worker=worker(index), scale=0.01 * (1 + index)))
        for index in range(8)
    ]
    shuffler = random.Random(5)
    roots = set()
    threads_before = torch.get_num_threads()
    for attempt in range(40):
        torch.set_num_threads(1 + attempt % 4)
        shuffler.shuffle(updates)
        roots.add(aggregate(config, genesis, 0, updates).state.root)
    torch.set_num_threads(threads_before)
    assert len(roots) == 1


def test_golden_root_of_an_outer_step() -> None:
    config = tiny_config(compressor="int8", **NESTEROV)
    random_words = np.random.Philox(key=5).random_raw(3 * config.num_parameters).reshape(3, -1)
    state = SharedState.genesis(config)
    for round_index in range(2):
        updates = []
        for index in range(3):
            exact = (random_words[index] >> np.uint64(40)).astype(np.float32) - np.float32(2**23)
            update_P = exact * np.float32(2.0**-30)
            payload = compress(
                config, update_P, worker=worker(index), base_round=state.round_index, round_index=round_index
            )
            updates.append((worker(index), payload))
        state = aggregate(config, state, round_index, updates).state
    assert state.root.hex() == "2c282d26aaf84ceaf821a2c21d678c428e654b18bef156abc1c347c03ef3682d"


def test_mean_and_sgd_step_agree_with_exact_arithmetic() -> None:
    config = tiny_config(compressor="none", outer_lr_milli=1_500)
    genesis = SharedState.genesis(config)
    updates = [(worker(index), random_payload(config, index, worker=worker(index))) for index in range(2)]
    result = aggregate(config, genesis, 0, updates)
    values_WP = [decoded(config, update) for update in updates]
    for position in range(0, config.num_parameters, 97):
        mean = (sum(int(values[position]) for values in values_WP) + 1) // 2
        step = (mean * 1500 + 128_000) // 256_000
        assert int(result.state.parameters_P[position]) == int(genesis.parameters_P[position]) - step


def test_nesterov_agrees_with_torch() -> None:
    config = tiny_config(compressor="none", **NESTEROV)
    shared = SharedState.genesis(config)
    reference = torch.from_numpy(shared.float_parameters().copy()).requires_grad_()
    optimizer = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=True)
    for round_index in range(4):
        update_P = random_update(config.num_parameters, round_index)
        payload = compress(config, update_P, worker=worker(0), base_round=shared.round_index, round_index=round_index)
        shared = aggregate(config, shared, round_index, [(worker(0), payload)]).state
        reference.grad = torch.from_numpy(update_P)
        optimizer.step()
    assert np.abs(shared.float_parameters() - reference.detach().numpy()).max() < 1e-5
    assert (shared.round_index, shared.rounds_settled) == (3, 4)


def test_unusable_payloads_are_named_and_change_nothing() -> None:
    config = tiny_config()
    genesis = SharedState.genesis(config)
    good = [(worker(index), random_payload(config, index, worker=worker(index))) for index in (1, 3, 5)]
    bad = [
        (worker(4), b""),
        (worker(2), good[0][1][:-1]),
        (worker(0), random_payload(config, 1, worker=worker(0), round_index=1)),
        (worker(6), random_payload(tiny_config(seed=1), 1, worker=worker(6))),
    ]
    result = aggregate(config, genesis, 0, good + bad)
    assert result.rejected == (worker(0), worker(2), worker(4), worker(6))
    assert result.included == (worker(1), worker(3), worker(5))
    assert result.state.root == aggregate(config, genesis, 0, good).state.root


@pytest.mark.parametrize("compressor", ["none", "int8", "topk"])
def test_a_copied_payload_is_rejected_whether_its_own_worker_takes_part_or_not(compressor: str) -> None:
    config = tiny_config(compressor=compressor)
    genesis = SharedState.genesis(config)
    victim, other = [(worker(index), random_payload(config, index, worker=worker(index))) for index in (1, 2)]
    copier = (worker(0), victim[1])
    both = aggregate(config, genesis, 0, [copier, victim, other])
    assert (both.included, both.rejected) == ((worker(1), worker(2)), (worker(0),))
    assert both.state.root == aggregate(config, genesis, 0, [victim, other]).state.root
    assert aggregate(config, genesis, 0, [copier, other]).rejected == (worker(0),)
    with pytest.raises(EmptyRound):
        aggregate(config, genesis, 0, [copier])


def test_a_round_without_one_usable_update_leaves_the_model_as_it_is() -> None:
    config = tiny_config()
    genesis = SharedState.genesis(config)
    before = genesis.root
    for updates in ([], [(worker(0), b"nothing")]):
        with pytest.raises(EmptyRound):
            aggregate(config, genesis, 0, updates)
    assert SharedState.from_bytes(genesis.to_bytes()).root == before


def test_one_giant_update_among_three_moves_the_model_no_further_than_the_median() -> None:
    config = tiny_config(compressor="int8", outer_lr_milli=1000)
    genesis = SharedState.genesis(config)
    honest = [(worker(index), random_payload(config, index, worker=worker(index))) for index in range(2)]
    giant = (worker(2), random_payload(config, 9, worker=worker(2), scale=0.5))
    result = aggregate(config, genesis, 0, [*honest, giant])
    moved = result.state.float_parameters() - genesis.float_parameters()
    median = sorted(norm_of(decoded(config, item)) for item in honest)[-1]
    assert worker(2) in result.clipped
    assert np.linalg.norm(moved) <= median * 2.0**-32 * 1.001


def test_two_updates_are_averaged_unclipped() -> None:
    config = tiny_config(compressor="int8")
    updates = [
        (worker(index), random_payload(config, index, worker=worker(index), scale=0.01 * (1 + 4 * index)))
        for index in range(2)
    ]
    assert aggregate(config, SharedState.genesis(config), 0, updates).clipped == ()


def test_a_step_out_of_the_fixed_point_range_is_refused_whole() -> None:
    config = tiny_config(compressor="int8", outer_lr_milli=32_000)
    genesis = SharedState.genesis(config)
    update_P = np.full(config.num_parameters, -60, dtype=np.float32)
    payload = compress(config, update_P, worker=worker(0), base_round=-1, round_index=0)
    with pytest.raises(StateOverflow):
        aggregate(config, genesis, 0, [(worker(0), payload)])


def test_momentum_at_its_bounds_never_overflows() -> None:
    config = tiny_config(compressor="int8", outer_optimizer="nesterov", momentum_milli=990, outer_lr_milli=1)
    state = SharedState.genesis(config)
    update_P = np.full(config.num_parameters, 60, dtype=np.float32)
    for round_index in range(200):
        payload = compress(
            config,
            update_P * (-1) ** (round_index // 20),
            worker=worker(0),
            base_round=round_index - 1,
            round_index=round_index,
        )
        state = aggregate(config, state, round_index, [(worker(0), payload)]).state
    assert int(np.abs(state.momentum_P).max()) < 101 * MAX_UPDATE


def test_misuse_is_refused() -> None:
    config = tiny_config()
    genesis = SharedState.genesis(config)
    payload = random_payload(config, 1, worker=worker(0))
    with pytest.raises(ValueError, match="named twice"):
        aggregate(config, genesis, 0, [(worker(0), payload), (worker(0), payload)])
    with pytest.raises(ValueError, match="20 bytes"):
        aggregate(config, genesis, 0, [(worker(0)[:-1], payload)])
    with pytest.raises(ValueError, match="at most"):
        aggregate(config, genesis, 0, [(worker(index), b"") for index in range(1025)])
    with pytest.raises(StateError, match="another configuration"):
        aggregate(tiny_config(seed=1), genesis, 0, [(worker(0), payload)])
    with pytest.raises(StateError, match="cannot follow"):
        aggregate(config, genesis, -1, [(worker(0), payload)])


def test_rounds_may_be_skipped_when_they_were_void() -> None:
    config = tiny_config()
    state = aggregate(
        config,
        SharedState.genesis(config),
        5,
        [(worker(0), random_payload(config, 1, worker=worker(0), round_index=5))],
    ).state
    assert (state.round_index, state.rounds_settled) == (5, 1)


def test_rounding_is_to_nearest_with_halves_upwards() -> None:
    values = np.array([-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5], dtype=np.int64)
    assert divide_rounding(values, 2).tolist() == [-2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3]
    assert divide_rounding(values, 3).tolist() == [-2, -1, -1, -1, 0, 0, 0, 1, 1, 1, 2]


def test_norm_is_exact_for_the_largest_and_smallest_elements() -> None:
    assert norm_of(np.array([3, -4], dtype=np.int64)) == 5
    assert norm_of(np.full(4, -MAX_UPDATE, dtype=np.int64)) == 2 * MAX_UPDATE
    values = np.random.Generator(np.random.PCG64(1)).integers(-MAX_UPDATE, MAX_UPDATE, size=3000)
    total = sum(int(value) ** 2 for value in values)
    assert norm_of(values) ** 2 <= total < (norm_of(values) + 1) ** 2
