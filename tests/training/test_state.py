"""The shared state: one root and one byte form for one content, and nothing else is taken for a state."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.training.helpers import tiny_config
from training.config import TrainingConfig
from training.errors import StateError, StateOverflow
from training.fixed_point import MAX_PARAMETER, to_parameters
from training.state import SharedState

NESTEROV = {"outer_optimizer": "nesterov", "momentum_milli": 900, "outer_lr_milli": 700}


def some_state(config: TrainingConfig) -> SharedState:
    random = np.random.Generator(np.random.PCG64(3))
    num_momentum = config.num_parameters if config.outer_optimizer == "nesterov" else 0
    return SharedState(
        config=config,
        round_index=6,
        rounds_settled=5,
        parameters_P=random.integers(-(2**31) + 1, 2**31, size=config.num_parameters).astype(np.int32),
        momentum_P=random.integers(-(2**44), 2**44, size=num_momentum),
    )


@pytest.mark.parametrize("outer", [{}, NESTEROV])
def test_bytes_round_trip_exactly(outer: dict[str, object]) -> None:
    state = some_state(tiny_config(**outer))
    again = SharedState.from_bytes(state.to_bytes())
    assert again.root == state.root
    assert again.to_bytes() == state.to_bytes()
    assert (again.round_index, again.rounds_settled, again.config) == (6, 5, state.config)
    assert np.array_equal(again.parameters_P, state.parameters_P)
    assert np.array_equal(again.momentum_P, state.momentum_P)


def test_safetensors_reads_the_file_with_names_shapes_round_and_root(tmp_path: Path) -> None:
    state = some_state(tiny_config(**NESTEROV))
    path = tmp_path / "state.safetensors"
    path.write_bytes(state.to_bytes())
    with safe_open(path, framework="numpy") as file:
        assert file.metadata()["root"] == state.root.hex()
        assert file.metadata()["round_index"] == "6"
        parts = [file.get_tensor(f"parameters.{name}") for name, _ in state.config.layout]
        assert [part.shape for part in parts] == [shape for _, shape in state.config.layout]
        assert np.array_equal(np.concatenate([part.ravel() for part in parts]), state.parameters_P)
        assert np.array_equal(file.get_tensor("momentum"), state.momentum_P)


def test_golden_root_of_a_genesis_state() -> None:
    config = TrainingConfig(alphabet=b"\n abc", num_layers=1, width=8, num_heads=2, block_length=8)
    assert SharedState.genesis(config).root.hex() == "03dccadea79e97296470908cee63aa8fec467ea031ac05cb298133671b5793e3"


def test_every_field_changes_the_root() -> None:
    config = tiny_config(**NESTEROV)
    state = some_state(config)
    changed_parameters, changed_momentum = state.parameters_P.copy(), state.momentum_P.copy()
    changed_parameters[-1] ^= 1
    changed_momentum[0] += 1
    others = [
        SharedState(tiny_config(**NESTEROV, seed=1), 6, 5, state.parameters_P, state.momentum_P),
        SharedState(config, 7, 5, state.parameters_P, state.momentum_P),
        SharedState(config, 6, 6, state.parameters_P, state.momentum_P),
        SharedState(config, 6, 5, changed_parameters, state.momentum_P),
        SharedState(config, 6, 5, state.parameters_P, changed_momentum),
    ]
    assert len({state.root, *(other.root for other in others)}) == 6


def test_every_single_changed_byte_is_refused() -> None:
    data = some_state(tiny_config()).to_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    for position in [*range(0, header_end, 7), header_end, len(data) // 2, len(data) - 1]:
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        with pytest.raises(StateError):
            SharedState.from_bytes(bytes(damaged))


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 100, 2000])
def test_a_file_cut_short_or_too_long_is_refused(cut: int) -> None:
    data = some_state(tiny_config()).to_bytes()
    with pytest.raises(StateError):
        SharedState.from_bytes(data[:cut])
    with pytest.raises(StateError):
        SharedState.from_bytes(data[:-1])
    with pytest.raises(StateError):
        SharedState.from_bytes(data + bytes(cut + 1))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=120), st.sampled_from([b"", b"{}", b"[]", b'{"__metadata__":[]}', b"[" * 500]))
def test_arbitrary_bytes_are_no_state(data: bytes, header: bytes) -> None:
    for candidate in (data, len(header).to_bytes(8, "little") + header + data):
        with pytest.raises(StateError):
            SharedState.from_bytes(candidate)


def test_metadata_that_promises_more_than_the_file_holds_is_refused() -> None:
    state = some_state(tiny_config())
    large = tiny_config(width=4096, num_heads=2)
    metadata = {
        "format": "outerstep-state/1",
        "manifest": large.to_manifest().hex(),
        "root": "",
        "round_index": "6",
        "rounds_settled": "5",
    }
    header = json.dumps({"__metadata__": metadata}).encode()
    with pytest.raises(StateError, match="not what its manifest says"):
        SharedState.from_bytes(len(header).to_bytes(8, "little") + header + state.parameters_P.tobytes())


@pytest.mark.parametrize(("round_index", "rounds_settled"), [(-2, 0), (-1, 1), (3, 0), (3, 5), (2**31, 1), (3, -1)])
def test_impossible_counters_are_refused(round_index: int, rounds_settled: int) -> None:
    genesis = SharedState.genesis(tiny_config())
    with pytest.raises(StateError):
        SharedState(genesis.config, round_index, rounds_settled, genesis.parameters_P, genesis.momentum_P)


def test_wrong_shapes_and_types_are_refused() -> None:
    genesis = SharedState.genesis(tiny_config())
    with pytest.raises(StateError, match="parameters"):
        SharedState(genesis.config, 0, 1, genesis.parameters_P[:-1], genesis.momentum_P)
    with pytest.raises(StateError, match="momentum"):
        SharedState(genesis.config, 0, 1, genesis.parameters_P, np.zeros(3, dtype=np.int64))


def test_a_state_cannot_be_changed_in_place() -> None:
    genesis = SharedState.genesis(tiny_config())
    with pytest.raises(ValueError, match="read-only"):
        genesis.parameters_P[0] = 1


def test_a_parameter_out_of_range_is_an_error_that_names_it() -> None:
    assert to_parameters(np.array([MAX_PARAMETER, -MAX_PARAMETER])).tolist() == [MAX_PARAMETER, -MAX_PARAMETER]
    for value in (MAX_PARAMETER + 1, -MAX_PARAMETER - 1):
        with pytest.raises(StateOverflow, match="parameter 1 "):
            to_parameters(np.array([0, value]))
