"""Counting of votes: quorum and hopelessness agree with the plain definition."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app.records import ScoreSheet, Submission
from abci_app.rules.tally import Value, Votes, has_quorum, is_hopeless, scored_out, take_votes

QUORUM = 666_666
ROOTS = (b"", b"r" * 32, b"s" * 32)
"""Not attested, and two values."""


def who(index: int) -> bytes:
    return bytes([index]) * 20


def submission(index: int, root: bytes) -> Submission:
    return Submission(1, 0, who(index), bytes(32), 1, blob=b"b" * 32, state_root=root)


def sheet(index: int, root: bytes = b"", **scores: int) -> ScoreSheet:
    entries = tuple((name.encode(), score) for name, score in scores.items())
    return ScoreSheet(1, 0, who(index), scores=entries, state_root=root)


def count(worker_roots: list[bytes], scorer_roots: list[bytes], stakes: list[int]) -> Votes:
    workers = [submission(i, root) for i, root in enumerate(worker_roots)]
    sheets = [sheet(100 + i, root) for i, root in enumerate(scorer_roots)]
    return take_votes([w.worker for w in workers], workers, {who(100 + i): s for i, s in enumerate(stakes)}, sheets)


def winners(votes: Votes) -> list[Value]:
    return [value for value in votes.values if has_quorum(votes, value, QUORUM)]


votes_of_workers = st.lists(st.sampled_from(ROOTS), min_size=1, max_size=5)
votes_of_scorers = st.lists(st.tuples(st.sampled_from(ROOTS), st.integers(1, 5)), max_size=3)


@given(votes_of_workers, votes_of_scorers)
def test_hopeless_is_when_no_completion_has_a_quorum(workers: list[bytes], scorers: list[tuple[bytes, int]]) -> None:
    scorer_roots, stakes = [root for root, _ in scorers], [stake for _, stake in scorers]
    fresh = b"t" * 32
    possible = False
    for filler in (*ROOTS[1:], fresh):
        filled = count([root or filler for root in workers], [root or filler for root in scorer_roots], stakes)
        possible = possible or bool(winners(filled))
    assert is_hopeless(count(workers, scorer_roots, stakes), QUORUM) == (not possible)


@given(votes_of_workers, votes_of_scorers)
def test_two_values_never_both_have_a_quorum(workers: list[bytes], scorers: list[tuple[bytes, int]]) -> None:
    assert len(winners(count(workers, [root for root, _ in scorers], [stake for _, stake in scorers]))) <= 1


@pytest.mark.parametrize(
    ("agreeing", "included", "enough"),
    [
        (1, 1, True),
        (1, 2, False),
        (2, 2, True),
        (1, 3, False),
        (2, 3, True),
        (2, 4, False),
        (3, 4, True),
        (3, 6, False),
        (4, 6, True),
    ],
)
def test_default_quorum_is_two_thirds(agreeing: int, included: int, enough: bool) -> None:
    votes = count([ROOTS[1]] * agreeing + [b""] * (included - agreeing), [], [])
    assert bool(winners(votes)) == enough


def test_votes_of_those_who_have_no_say_do_not_count() -> None:
    workers = [submission(i, ROOTS[1]) for i in range(3)]
    votes = take_votes([who(0)], workers, {who(100): 5}, [sheet(100, ROOTS[1]), sheet(101, ROOTS[2])])
    assert votes.workers == {Value(ROOTS[1], ()): 1}
    assert votes.stakes == {Value(ROOTS[1], ()): 5}
    assert votes.is_complete


@pytest.mark.parametrize("scores", list(product((-1, 0, 1), repeat=3)))
def test_scored_out_is_a_negative_weighted_median(scores: tuple[int, int, int]) -> None:
    stakes = {who(100): 3, who(101): 2, who(102): 2}
    sheets = [sheet(100 + i, a=score) for i, score in enumerate(scores)]
    expanded = sorted(score for i, score in enumerate(scores) for _ in range(stakes[who(100 + i)]))
    assert scored_out(sheets, stakes) == ({b"a"} if expanded[3] < 0 else set())
