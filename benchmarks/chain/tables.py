"""What is printed: a line for each run, and the table of figures at the end."""

from rich.console import Console
from rich.table import Table

from benchmarks.chain.report import ChainReport
from benchmarks.chain.runs import Run


def run_line(run: Run) -> str:
    """One run in two lines of text."""
    what = f"{run.part:10} {run.application:9} x{run.nodes}"
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


def show_report(console: Console, report: ChainReport) -> None:
    """The figures, and what is not as it should be."""
    table = Table("what", "Go kvstore", "outerstep", "ratio", "target", title=_title(report))
    for row in _rows(report):
        table.add_row(*row)
    console.print(table)
    for problem in report.problems:
        console.print(f"PROBLEM: {problem}", markup=False, highlight=False, soft_wrap=True)


def _title(report: ChainReport) -> str:
    machine = report.machine
    return (
        f"{machine['cores']} cores of {machine['cpu']}, CometBFT {machine['cometbft']}, Python {machine['python']}; "
        f"{report.rounds} rounds, {report.seconds:.0f} s"
    )


def _rows(report: ChainReport) -> list[tuple[str, str, str, str, str]]:
    return [
        *(
            (f"tx/s, {name}", _number(go), _number(ours), _number(ratio, 2), "")
            for name, go, ours, ratio in (
                ("one validator", report.go_tps_1, report.signed_tps_1, report.ratio_1),
                ("four validators", report.go_tps_4, report.signed_tps_4, report.ratio_4),
            )
        ),
        ("finality at 2,500 tx/s, p50, s", "", _number(report.p50_finality_s_at_2500, 3), "", ""),
        ("finality at 2,500 tx/s, p99, s", "", _number(report.p99_finality_s_at_2500, 3), "", ""),
        ("longest block interval there, s", "", _number(report.max_block_interval_s_at_2500, 3), "", ""),
        ("messages/s, envelopes of 10", "", _number(report.messages_per_s_10), "", ""),
        ("messages/s, envelopes of 100", "", _number(report.messages_per_s_100), "", ""),
        ("processor s per 1,000 tx, application", "", _number(report.cpu_s_per_1000_tx_app, 3), "", ""),
        ("processor s per 1,000 tx, engine", "", _number(report.cpu_s_per_1000_tx_engine, 3), "", ""),
    ]


def _number(value: float | None, digits: int = 0) -> str:
    return "not measured" if value is None else f"{value:,.{digits}f}"
