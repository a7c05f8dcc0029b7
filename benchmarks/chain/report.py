"""build/bench-chain.json: the figures, worked out from the runs, and the runs themselves."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.chain.commits import CommitTimes
from benchmarks.chain.runs import Run
from node.files import write_atomically


class ReportError(Exception):
    """There is no report, or it is not of this form; the text says what to do."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the rounds; null where nothing was measured. `_1` and `_4`: validators on this machine."""

    go_tps_1: float | None = None
    """CometBFT with its built-in kvstore, unsigned transactions, as fast as it goes."""
    signed_tps_1: float | None = None
    """Ours, signed, everything checked."""
    ratio_1: float | None = None
    """Median of what the rounds give, ours over Go's within one round."""
    go_tps_4: float | None = None
    signed_tps_4: float | None = None
    ratio_4: float | None = None
    p50_finality_s_at_2500: float | None = None
    """One validator, 2,500 transactions a second offered; from submission to commit as a client sees it."""
    p99_finality_s_at_2500: float | None = None
    max_block_interval_s_at_2500: float | None = None
    """Longest of all rounds."""
    messages_per_s_10: float | None = None
    """One validator, envelopes of 10 messages."""
    messages_per_s_100: float | None = None
    commit_ms_at_1e4: float | None = None
    """State root and Commit of a block of 500 transfers, on a state of so many accounts."""
    commit_ms_at_1e4_accounts: float | None = None
    """The same figure under its longer name, like the next ones."""
    commit_ms_at_1e5: float | None = None
    commit_ms_at_1e5_accounts: float | None = None
    commit_ms_at_1e6_accounts: float | None = None
    honest_ratio_under_flood: float | None = None
    """One validator, honest transactions as fast as they go: committed ones beside 1,000 invalid ones a second, over
    committed ones without them; median of what the rounds give."""
    flood_tps: float | None = None
    """Invalid transactions a second that were really sent."""
    p99_finality_s_quiet: float | None = None
    """Of the honest ones without the flood."""
    p99_finality_s_under_flood: float | None = None
    rss_growth_mib_quiet: float | None = None
    """Resident memory of the application, from before the load to its end."""
    flood_rss_growth_mib: float | None = None
    """The same under the flood."""
    cpu_s_per_1000_tx_app: float | None = None
    """One validator, as fast as it goes."""
    cpu_s_per_1000_tx_engine: float | None = None


class ChainReport(Figures, frozen=True, kw_only=True):
    """The content of bench-chain.json."""

    problems: tuple[str, ...]
    """Everything that is not as it should be, in words."""
    seconds: float
    """That the whole measurement took."""
    rounds: int
    window_seconds: float
    """Asked for; each run has the one that it got."""
    machine: dict[str, str | int | float]
    runs: tuple[Run, ...]
    commits: tuple[CommitTimes, ...]


def figures(runs: Sequence[Run], commits: Sequence[CommitTimes]) -> Figures:
    """What all parts say together."""
    go = {n: _chosen(runs, "throughput", application="kvstore", nodes=n) for n in (1, 4)}
    ours = {n: _chosen(runs, "throughput", application="outerstep", nodes=n) for n in (1, 4)}
    latency = _chosen(runs, "latency")
    envelopes = {n: _chosen(runs, "envelopes", messages_per_tx=n) for n in (10, 100)}
    quiet = [run for run in _chosen(runs, "flood") if not run.flood_tps]
    flooded = [run for run in _chosen(runs, "flood") if run.flood_tps]
    commit_ms = {each.accounts: each.commit_ms for each in commits}
    return Figures(
        go_tps_1=_median(go[1], lambda run: run.committed_tps),
        signed_tps_1=_median(ours[1], lambda run: run.committed_tps),
        ratio_1=median_ratio(ours[1], go[1]),
        go_tps_4=_median(go[4], lambda run: run.committed_tps),
        signed_tps_4=_median(ours[4], lambda run: run.committed_tps),
        ratio_4=median_ratio(ours[4], go[4]),
        p50_finality_s_at_2500=_median(latency, lambda run: run.finality_p50_s),
        p99_finality_s_at_2500=_median(latency, lambda run: run.finality_p99_s),
        max_block_interval_s_at_2500=max((run.block_interval_max_s for run in latency), default=None),
        messages_per_s_10=_median(envelopes[10], lambda run: run.messages_per_s),
        messages_per_s_100=_median(envelopes[100], lambda run: run.messages_per_s),
        commit_ms_at_1e4=commit_ms.get(10_000),
        commit_ms_at_1e4_accounts=commit_ms.get(10_000),
        commit_ms_at_1e5=commit_ms.get(100_000),
        commit_ms_at_1e5_accounts=commit_ms.get(100_000),
        commit_ms_at_1e6_accounts=commit_ms.get(1_000_000),
        honest_ratio_under_flood=median_ratio(flooded, quiet),
        flood_tps=_median(flooded, lambda run: run.flood_tps),
        p99_finality_s_quiet=_median(quiet, lambda run: run.finality_p99_s),
        p99_finality_s_under_flood=_median(flooded, lambda run: run.finality_p99_s),
        rss_growth_mib_quiet=_median(quiet, lambda run: run.rss_after_mib - run.rss_before_mib),
        flood_rss_growth_mib=_median(flooded, lambda run: run.rss_after_mib - run.rss_before_mib),
        cpu_s_per_1000_tx_app=_median(ours[1], lambda run: run.cpu_s_per_1000_tx_app),
        cpu_s_per_1000_tx_engine=_median(ours[1], lambda run: run.cpu_s_per_1000_tx_engine),
    )


def median_ratio(above: Iterable[Run], below: Iterable[Run]) -> float | None:
    """Of committed transactions a second, round by round; None without a round that has both."""
    other = {run.round_index: run.committed_tps for run in below}
    ratios = [run.committed_tps / other[run.round_index] for run in above if other.get(run.round_index)]
    return median(ratios) if ratios else None


def find_problems(run: Run, seconds: float) -> list[str]:
    """What is wrong with one run; empty when every transaction was executed with success."""
    where = f"{run.part}, {run.application}, nodes {run.nodes}, round {run.round_index + 1}"
    found = []
    if not run.clean:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in run.reasons.items())
        found.append(
            f"{where}: of {run.submitted} transactions {run.lost} were lost, {run.failed} failed, {run.refused} were "
            f"refused ({reasons or 'no reason given'})"
        )
    if run.ran_out and run.window_s < seconds / 2:
        found.append(f"{where}: all prepared transactions were sent after {run.window_s:.1f} s; prepare more of them")
    return found


def write_report(report: ChainReport, path: Path) -> None:
    """Whole or not at all.

    Raises: OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def read_report(path: Path) -> ChainReport:
    """Raises: ReportError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ChainReport)
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror}; `make bench-chain` writes it") from error
    except msgspec.MsgspecError as error:
        raise ReportError(f"{path} was not written by this version of make bench-chain: {error}") from error


def _chosen(runs: Iterable[Run], part: str, **values: object) -> list[Run]:
    return [
        run for run in runs if run.part == part and all(getattr(run, name) == value for name, value in values.items())
    ]


def _median(runs: Sequence[Run], of: Callable[[Run], float]) -> float | None:
    return median(map(of, runs)) if runs else None
