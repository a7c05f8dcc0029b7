"""Every fuzz target with inputs by hypothesis; `make fuzz` runs the same ones for longer, guided by coverage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=150, deadline=None)
@given(data=st.one_of(st.binary(max_size=60), st.binary(min_size=60, max_size=600)))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    seeds = seeds_of(name)
    assert seeds
    for seed in seeds:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_seeds_with_one_byte_changed(name: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(seeds_of(name)))
    at, value = data.draw(st.integers(0, len(seed) - 1)), data.draw(st.integers(0, 255))
    TARGETS[name](seed[:at] + bytes([value]) + seed[at + 1 :])
