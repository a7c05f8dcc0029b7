"""The figures of a load."""

import statistics
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localnet.load.results import LoadResult, intervals, median, percentile

numbers = st.lists(st.floats(0, 1000), min_size=1, max_size=50).map(sorted)


@settings(deadline=None)
@given(numbers, st.floats(0.01, 1.0))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize(("share", "want"), [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_percentiles_of_a_hundred_values_are_those_values(share: float, want: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], share) == want


def test_without_values_percentile_and_median_are_zero() -> None:
    assert percentile([], 0.5) == 0.0
    assert median([]) == 0.0


@settings(deadline=None)
@given(numbers)
def test_the_median_is_that_of_the_standard_library(values: list[float]) -> None:
    assert median(values) == statistics.median(values)


def test_intervals_lie_between_neighbours() -> None:
    assert intervals([1.0, 1.5, 4.0]) == [0.5, 2.5]
    assert intervals([1.0]) == []


@pytest.mark.parametrize(
    ("counts", "clean"),
    [
        ({"submitted": 5, "committed": 5}, True),
        ({"submitted": 5, "committed": 5, "failed": 1}, False),
        ({"submitted": 5, "committed": 4, "lost": 1}, False),
        ({"submitted": 5, "committed": 4, "refused": 1}, False),
        ({"submitted": 5, "committed": 4}, False),
    ],
)
def test_a_load_is_clean_only_when_all_of_it_was_executed_with_success(counts: dict[str, int], clean: bool) -> None:
    fields: dict[str, Any] = dict.fromkeys(LoadResult.__struct_fields__, 0) | counts
    result = msgspec.convert(fields | {"kind": "test", "rate": None, "ran_out": False, "reasons": {}}, LoadResult)
    assert result.clean is clean
