"""Run it: `python -m localnet.chaos [--minutes 8] [--seed N] [--kinds a,b] [--home DIR] [--keep]`."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console

from localnet.audit import AuditFailed
from localnet.chaos.disk import DiskError
from localnet.chaos.faults import FaultFailed
from localnet.chaos.findings import DEFAULT_MINUTES, REPORT_NAME, ChaosOptions
from localnet.chaos.isolation import isolate
from localnet.chaos.partition import PartitionFailed
from localnet.chaos.plan import ALL_KINDS
from localnet.chaos.report import ChaosReport
from localnet.chaos.run import Run
from localnet.homes import HomesError
from localnet.network import StartFailed
from localnet.ports import PortError
from localnet.state import StateError
from node.errors import NodeError

EXIT_STATUS: Final = {"held": 0, "failed": 1, "incomplete": 3, "interrupted": 130}
MAX_MINUTES: Final = 14.0
EXPECTED: Final = (
    AuditFailed,
    DiskError,
    FaultFailed,
    HomesError,
    NodeError,
    PartitionFailed,
    PortError,
    StartFailed,
    StateError,
    aiohttp.ClientError,
    OSError,
    TimeoutError,
)
"""What can go wrong without being a bug of this program: said in one paragraph, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 everything held, 1 something did not, 3 held but incomplete, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(words, no_namespaces=None)
    no_namespaces = isolate(words)
    options = _parse(words, no_namespaces=no_namespaces)
    console = Console()
    run = Run(options, console)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        asyncio.run(run.everything())
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left running")
    except EXPECTED as error:
        console.print(f"the chaos run failed: {error}", style="red", markup=False, highlight=False)
        console.print(f"logs of the nodes: {options.home}", markup=False)
    report = run.findings.report()
    _show(console, options, report)
    return EXIT_STATUS[report.verdict]


def _show(console: Console, options: ChaosOptions, report: ChaosReport) -> None:
    """The result in a few lines."""
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.kind_counts.items())
    lines = [
        f"{report.faults} faults: {kinds or 'none'}",
        f"{report.heights} blocks, {report.txs_acknowledged} of {report.txs_sent} transactions acknowledged",
        f"app hash mismatches {report.app_hash_mismatches}, lost {report.lost_txs}, double {report.double_executions}, "
        f"longest stall {report.longest_stall_s:.1f} s, state sync {report.state_sync_ok}, partition "
        f"{report.partition_ok}",
        *(f"skipped {kind}: {reason}" for kind, reason in report.skipped.items()),
        *(f"PROBLEM: {problem}" for problem in report.problems),
        f"{report.verdict} (seed {report.seed}, {report.duration_s:.0f} s); {options.report}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _parse(arguments: Sequence[str], *, no_namespaces: str | None) -> ChaosOptions:
    parser = argparse.ArgumentParser(
        prog="python -m localnet.chaos",
        description="Four nodes under load are broken in every way we know; writes build/chaos.json.",
    )
    parser.add_argument("--minutes", type=float, default=DEFAULT_MINUTES, help=f"1 to {MAX_MINUTES:.0f}, default 8")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same faults in the same order")
    parser.add_argument("--kinds", default=",".join(ALL_KINDS), help=f"of {','.join(ALL_KINDS)} (default: all)")
    parser.add_argument(
        "--home", type=Path, default=Path("build/chaos"), help="folder for the nodes (default: build/chaos)"
    )
    parser.add_argument("--report", type=Path, default=Path("build", REPORT_NAME), help="default: build/chaos.json")
    parser.add_argument("--keep", action="store_true", help="leave the folder also when everything held")
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.minutes <= MAX_MINUTES:
        parser.error(f"--minutes is {chosen.minutes:g}; it should be 1 to {MAX_MINUTES:.0f}")
    kinds = tuple(chosen.kinds.split(","))
    unknown = sorted(set(kinds) - set(ALL_KINDS))
    if unknown:
        parser.error(f"--kinds names {', '.join(unknown)}; known: {', '.join(ALL_KINDS)}")
    return ChaosOptions(
        home=chosen.home.absolute(),
        report=chosen.report.absolute(),
        minutes=chosen.minutes,
        seed=chosen.seed,
        kinds=kinds,
        keep=chosen.keep,
        no_namespaces=no_namespaces,
    )


def _interrupt(number: int, frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
