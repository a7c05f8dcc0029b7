"""The job's configuration: one byte form, checked bounds, a schedule that depends on settled rounds alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.encoding import encode
from tests.training.helpers import tiny_config, tiny_corpus
from training.config import MAX_MANIFEST_BYTES, TrainingConfig
from training.errors import ConfigError


def test_manifest_round_trips_and_is_small() -> None:
    config = TrainingConfig.demo(tiny_corpus(), 9)
    manifest = config.to_manifest()
    assert TrainingConfig.from_manifest(manifest) == config
    assert TrainingConfig.from_manifest(manifest).hash == config.hash
    assert len(manifest) < 1024 < MAX_MANIFEST_BYTES


def test_golden_hash_of_a_configuration() -> None:
    config = TrainingConfig(alphabet=b"\n abc")
    assert config.hash.hex() == "419999303bc5bb831d265dab8da385ed8b545d50c698e8cd999a7051959430e7"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("seed", 2**63),
        ("seed", True),
        ("inner_lr_ppm", 4.0),
        ("inner_steps", 0),
        ("outer_lr_milli", 32_001),
        ("momentum_milli", 991),
        ("top_k", 4097),
        ("width", 9),
        ("compressor", "zip"),
        ("schedule", "linear"),
        ("alphabet", b""),
        ("alphabet", b"ba"),
        ("alphabet", b"aa"),
        ("version", 2),
        ("outer_optimizer", "nesterov"),
        ("width", 8192),
    ],
)
def test_values_out_of_bounds_are_refused_by_name(field: str, value: object) -> None:
    changes: dict[str, object] = {field: value}
    if (field, value) == ("width", 8192):
        changes["num_layers"] = 128  # each in its own range, together too large
    with pytest.raises(ConfigError):
        tiny_config(**changes)


def test_momentum_without_nesterov_is_refused() -> None:
    with pytest.raises(ConfigError, match="momentum_milli"):
        tiny_config(momentum_milli=900)


def test_a_manifest_with_a_value_out_of_bounds_is_refused() -> None:
    fields = list(msgspec.structs.astuple(tiny_config()))
    fields[tiny_config().__struct_fields__.index("inner_steps")] = 0
    with pytest.raises(ConfigError, match="inner_steps"):
        TrainingConfig.from_manifest(encode(fields))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_manifest(data: bytes) -> None:
    with pytest.raises(ConfigError):
        TrainingConfig.from_manifest(data)


def test_an_overlong_manifest_is_refused_unread() -> None:
    with pytest.raises(ConfigError, match="at most"):
        TrainingConfig.from_manifest(b"\x00" * (MAX_MANIFEST_BYTES + 1))


def test_learning_rate_warms_up_then_falls_to_its_final_value_and_stays() -> None:
    config = tiny_config(total_rounds=10, inner_steps=10, warmup_steps=5, inner_lr_ppm=1000, final_lr_ppm=100)
    rates = [config.inner_lr(step) for step in range(130)]
    assert rates[0] == pytest.approx(0.0002)
    assert max(rates) == rates[4] == pytest.approx(0.001)
    assert rates[4:101] == sorted(rates[4:101], reverse=True)
    assert rates[100] == rates[129] == pytest.approx(0.0001)


def test_constant_schedule_stays_at_its_peak_after_warm_up() -> None:
    config = tiny_config(schedule="constant", inner_lr_ppm=1000, warmup_steps=2)
    assert [config.inner_lr(step) for step in (1, 2, 1000)] == [pytest.approx(0.001)] * 3
