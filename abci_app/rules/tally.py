"""Counting: scores, and who attested what. No writes.

A vote counts once for its sender. Workers weigh alike, scorers by the stake they have when the votes are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abci_app.records import Job, ScoreSheet, Submission
from abci_app.rules.validators import active_stake
from abci_app.state import ReadableState
from primitives.amounts import PPM


@dataclass(frozen=True, slots=True, order=True)
class Value:
    """What was attested: the next state's root, and whose blobs were unusable."""

    state_root: bytes
    rejected: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """Everybody's attestations in one round. Stakes are 0 in jobs without scorers."""

    values: tuple[Value, ...]
    """Attested values, sorted."""
    workers: Mapping[Value, int]
    stakes: Mapping[Value, int]
    num_workers: int
    """Included workers, whether they have attested or not."""
    total_stake: int
    """Of all scorers that are active validators."""
    missing_workers: int
    missing_stake: int

    @property
    def is_complete(self) -> bool:
        return self.missing_workers == 0 and self.missing_stake == 0


def scorer_stakes(state: ReadableState, job: Job) -> dict[bytes, int]:
    """Stake of each scorer of the job that is an active validator now, by operator in sorted order."""
    stakes = {scorer: active_stake(state, scorer) for scorer in job.terms.scorers}
    return {scorer: stake for scorer, stake in stakes.items() if stake}


def scored_out(sheets: Sequence[ScoreSheet], stakes: Mapping[bytes, int]) -> set[bytes]:
    """Workers whose stake-weighted median score is negative: more than half of the stake that scored says so.

    Nobody's word about itself counts.
    """
    balance: dict[bytes, int] = {}
    for sheet in sheets:
        for worker, score in sheet.scores:
            if worker != sheet.scorer:
                stake = stakes[sheet.scorer]
                balance[worker] = balance.get(worker, 0) + (stake if score >= 0 else -stake)
    return {worker for worker, stake in balance.items() if stake < 0}


def take_votes(
    included: Sequence[bytes],
    submissions: Sequence[Submission],
    stakes: Mapping[bytes, int],
    sheets: Sequence[ScoreSheet],
) -> Votes:
    """Count the attestations of the included workers and of the scorers in `stakes`; others' do not count."""
    by_workers: dict[Value, int] = {}
    by_stake: dict[Value, int] = {}
    frozen = set(included)
    for submission in submissions:
        if submission.worker in frozen and submission.state_root:
            value = Value(submission.state_root, submission.rejected)
            by_workers[value] = by_workers.get(value, 0) + 1
    for sheet in sheets:
        if sheet.scorer in stakes and sheet.state_root:
            value = Value(sheet.state_root, sheet.rejected)
            by_stake[value] = by_stake.get(value, 0) + stakes[sheet.scorer]
    return Votes(
        values=tuple(sorted(by_workers.keys() | by_stake.keys())),
        workers=by_workers,
        stakes=by_stake,
        num_workers=len(included),
        total_stake=sum(stakes.values()),
        missing_workers=len(included) - sum(by_workers.values()),
        missing_stake=sum(stakes.values()) - sum(by_stake.values()),
    )


def has_quorum(votes: Votes, value: Value, quorum_ppm: int) -> bool:
    """Whether `value` has the quorum of the included workers and, where there are scorers, of their stake."""
    return _reaches(votes, votes.workers.get(value, 0), votes.stakes.get(value, 0), quorum_ppm)


def is_hopeless(votes: Votes, quorum_ppm: int) -> bool:
    """Whether no value can reach the quorum any more, even if all who are missing agreed on it."""
    if _reaches(votes, votes.missing_workers, votes.missing_stake, quorum_ppm):
        return False
    return not any(
        _reaches(
            votes,
            votes.workers.get(value, 0) + votes.missing_workers,
            votes.stakes.get(value, 0) + votes.missing_stake,
            quorum_ppm,
        )
        for value in votes.values
    )


def _reaches(votes: Votes, num_workers: int, stake: int, quorum_ppm: int) -> bool:
    enough_workers = num_workers * PPM >= quorum_ppm * votes.num_workers
    enough_stake = stake * PPM >= quorum_ppm * votes.total_stake
    return enough_workers and enough_stake
