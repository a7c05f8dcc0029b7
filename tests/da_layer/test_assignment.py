"""Which rows go to whom: any third of the stake holds enough, and nobody chooses."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.blobs import MAX_ROWS, ServiceMember, assign_rows, data_rows_for, row_counts
from primitives.hashing import sha256


def members(stakes: list[int]) -> list[ServiceMember]:
    return [ServiceMember(bytes([position]) * 20, stake, b"", "") for position, stake in enumerate(stakes)]


STAKES = st.lists(st.integers(1, 10**15) | st.integers(1, 5), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(stakes=STAKES, wanted=st.integers(1, 40), seed=st.integers(0, 1000))
def test_every_third_of_the_stake_holds_k_rows(stakes: list[int], wanted: int, seed: int) -> None:
    group = members(stakes)
    k = data_rows_for(group, wanted)
    assigned = assign_rows(sha256(seed.to_bytes(4, "big")), k, group)
    total = sum(stakes)
    for size in range(1, len(stakes) + 1):
        for chosen in itertools.combinations(range(len(stakes)), size):
            if 3 * sum(stakes[position] for position in chosen) >= total:
                assert len({index for position in chosen for index in assigned[position]}) >= k


@settings(max_examples=60, deadline=None)
@given(stakes=STAKES, wanted=st.integers(1, 85), seed=st.integers(0, 1000))
def test_every_row_has_exactly_one_holder(stakes: list[int], wanted: int, seed: int) -> None:
    group = members(stakes)
    k = data_rows_for(group, wanted)
    assigned = assign_rows(sha256(seed.to_bytes(4, "big")), k, group)
    counts = row_counts(k, group)
    assert [len(rows) for rows in assigned] == counts
    assert sorted(index for rows in assigned for index in rows) == list(range(sum(counts)))
    assert all(list(rows) == sorted(rows) for rows in assigned)
    assert 3 * k <= sum(counts) <= min(MAX_ROWS, 3 * k + len(stakes))


def test_the_commitment_decides_who_holds_which_row() -> None:
    group = members([1, 1, 1, 1])
    first, second = (assign_rows(sha256(name), 8, group) for name in (b"a", b"b"))
    assert first != second
    assert first == assign_rows(sha256(b"a"), 8, group)


def test_an_assignment_is_pinned() -> None:
    """All nodes of a network must deal alike, whatever version they run."""
    assert assign_rows(bytes(32), 2, members([1, 2, 3])) == [(3,), (4, 5), (0, 1, 2)]


def test_more_members_than_rows_are_refused() -> None:
    assert data_rows_for(members([1] * 255), 85) == 85
    with pytest.raises(ValueError, match="256 members"):
        data_rows_for(members([1] * 256))
