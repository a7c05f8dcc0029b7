"""What is printed: a line for each run, and the table of figures at the end."""

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.chain.commits import CommitTimes
from benchmarks.chain.report import ChainReport
from benchmarks.chain.runs import Run

MIN_HONEST_RATIO: Final = 0.9
MIN_RATIO_1: Final = 0.55
MIN_RATIO_4: Final = 0.6
MIN_MESSAGES_PER_S_100: Final = 20_000
"""The project's targets."""


def run_line(run: Run) -> str:
    """One run in two lines of text."""
    what = f"{run.part:10} {run.application:9} x{run.nodes}"
    if run.flood_tps:
        what += f" + {run.flood_tps:.0f}/s"
    if run.messages_per_tx > 1:
        what += f" of {run.messages_per_tx}"
    speed = f"{run.committed_tps:7,.0f} tx/s"
    if run.messages_per_tx > 1:
        speed += f" ({run.messages_per_s:,.0f} messages/s)"
    return (
        f"{what:31} {speed}, finality p50 {run.finality_p50_s:.2f} p99 {run.finality_p99_s:.2f} s, blocks "
        f"{run.block_interval_median_s:.2f} max {run.block_interval_max_s:.2f} s, {run.window_s:.1f} s\n"
        f"{'':31} cpu s/1000 tx: app {run.cpu_s_per_1000_tx_app:.3f} engine {run.cpu_s_per_1000_tx_engine:.3f}; "
        f"submitted {run.submitted} lost {run.lost} failed {run.failed} refused {run.refused}"
        f"{', ran out' if run.ran_out else ''}"
    )


def commit_line(times: CommitTimes) -> str:
    """One size of state in a line of text."""
    return (
        f"{'commits':10} {times.accounts:9,} accounts: commit {times.commit_ms:.1f} ms, max {times.commit_ms_max:.1f} "
        f"(state root {times.state_root_ms:.1f} + write {times.write_ms:.1f}), cold "
        f"{times.cold_commit_ms:.1f}, finalize {times.finalize_ms:.1f} ms, "
        f"{times.blocks} blocks of {times.txs_per_block}"
    )


def show_report(console: Console, report: ChainReport) -> None:
    """The figures, and what is not as it should be."""
    table = Table("what", "Go kvstore", "outerstep", "ratio", "target")
    for row in _rows(report):
        table.add_row(*row)
    console.print(_title(report), markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    for problem in report.problems:
        console.print(f"PROBLEM: {problem}", markup=False, highlight=False, soft_wrap=True)


def _title(report: ChainReport) -> str:
    machine = report.machine
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['engine']}, Python {machine['python']}; "
        f"{report.rounds} rounds of {report.window_seconds:g} s, {report.seconds:.0f} s together"
    )


def _rows(report: ChainReport) -> Iterator[tuple[str, str, str, str, str]]:
    r = report
    least_1, least_4 = f"ratio >= {MIN_RATIO_1}", f"ratio >= {MIN_RATIO_4}"
    yield _row("tx/s, one validator", r.signed_tps_1, go=r.go_tps_1, ratio=r.ratio_1, target=least_1)
    yield _row("tx/s, four validators", r.signed_tps_4, go=r.go_tps_4, ratio=r.ratio_4, target=least_4)
    yield _row("finality at 2,500 tx/s, p50, s", r.p50_finality_s_at_2500, digits=3)
    yield _row("finality at 2,500 tx/s, p99, s", r.p99_finality_s_at_2500, digits=3, target="< 1")
    yield _row("longest time between blocks there, s", r.max_block_interval_s_at_2500, digits=3, target="<= 1")
    yield _row("messages/s, envelopes of 10", r.messages_per_s_10)
    yield _row("messages/s, envelopes of 100", r.messages_per_s_100, target=f">= {MIN_MESSAGES_PER_S_100:,}")
    least = r.commit_ms_at_1e4_accounts
    for name, found in (
        ("10^4", least),
        ("10^5", r.commit_ms_at_1e5_accounts),
        ("10^6", r.commit_ms_at_1e6_accounts),
    ):
        growth = found / least if found and least else None
        yield _row(f"commit of 500 transfers, {name} accounts, ms", found, digits=1, ratio=growth, target="flat")
    yield _row(
        f"honest share beside {r.flood_tps or 0:.0f} invalid tx/s",
        r.honest_ratio_under_flood,
        digits=3,
        target=f">= {MIN_HONEST_RATIO}",
    )
    yield _row("finality of the honest there, p99, s", r.p99_finality_s_under_flood, digits=3)
    yield _row("the same without the flood", r.p99_finality_s_quiet, digits=3)
    yield _row("memory that the application grew there, MiB", r.flood_rss_growth_mib)
    yield _row("the same without the flood", r.rss_growth_mib_quiet)
    yield _row("processor s per 1,000 tx, application", r.cpu_s_per_1000_tx_app, digits=3)
    yield _row("processor s per 1,000 tx, engine", r.cpu_s_per_1000_tx_engine, digits=3)


def _row(
    what: str,
    ours: float | None,
    *,
    digits: int = 0,
    go: float | None = None,
    ratio: float | None = None,
    target: str = "",
) -> tuple[str, str, str, str, str]:
    found = "not measured" if ours is None else f"{ours:,.{digits}f}"
    return what, "" if go is None else f"{go:,.{digits}f}", found, "" if ratio is None else f"{ratio:.2f}", target
