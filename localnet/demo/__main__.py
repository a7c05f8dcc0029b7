"""Run the demo: `python -m localnet.demo [--keep] [--text FILE] [--rounds N] [--nodes 4] [--workers 4]`."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
from rich.console import Console

from localnet.audit import AuditFailed
from localnet.demo.checkpoint import CheckpointMissing
from localnet.demo.findings import DemoOptions
from localnet.demo.report import DemoReport
from localnet.demo.run import run_demo
from localnet.demo.tables import show_result
from localnet.demo.workers import WorkerFailed
from localnet.homes import HomesError
from localnet.network import StartFailed
from localnet.ports import PortError
from localnet.state import StateError
from node.errors import NodeError
from storage.errors import StorageError
from training.errors import TrainingError

MIN_ROUNDS: Final = 6
INTERRUPTED: Final = 130
EXPECTED: Final = (
    AuditFailed,
    aiohttp.ClientError,
    CheckpointMissing,
    HomesError,
    NodeError,
    PortError,
    StartFailed,
    StateError,
    StorageError,
    TrainingError,
    WorkerFailed,
    OSError,
    TimeoutError,
)
"""What can go wrong without being a bug: said in one paragraph, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 all went as it should, 1 something did not (with a list), 130 interrupted."""
    console = Console()
    options = _parse(arguments)
    reports: list[DemoReport] = []

    def finished(report: DemoReport) -> None:
        reports.append(report)
        show_result(console, report)

    try:
        asyncio.run(run_demo(options, console, finished=finished))
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running" if reports else "interrupted; nothing is left running")
    except EXPECTED as error:
        console.print(f"the demo failed: {error}", style="red", markup=False, highlight=False)
        console.print(f"logs of nodes and workers: {options.folder}", markup=False)
        return 1
    if not reports:
        return INTERRUPTED
    return 1 if reports[0].problems else 0


def _parse(arguments: Sequence[str] | None) -> DemoOptions:
    usual = DemoOptions()
    parser = argparse.ArgumentParser(
        prog="python -m localnet.demo",
        description="Four nodes and four workers train a language model on real text; writes build/demo.json.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the network up afterwards, until Ctrl-C")
    parser.add_argument("--text", type=Path, metavar="FILE", help="train on this text (default: Python's own source)")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help=f"outer steps, at least {MIN_ROUNDS}")
    parser.add_argument("--nodes", type=int, default=usual.nodes, help="1 to 16")
    parser.add_argument("--workers", type=int, default=usual.workers, help="1 to 16")
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder for demo.json and all else")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < MIN_ROUNDS:
        parser.error(f"--rounds is {chosen.rounds}; it should be at least {MIN_ROUNDS}")
    for name in ("nodes", "workers"):
        if not 1 <= getattr(chosen, name) <= 16:
            parser.error(f"--{name} is {getattr(chosen, name)}; it should be 1 to 16")
    return DemoOptions(
        keep=chosen.keep,
        text=chosen.text,
        rounds=chosen.rounds,
        nodes=chosen.nodes,
        workers=chosen.workers,
        build=chosen.build.absolute(),
    )


if __name__ == "__main__":
    sys.exit(main())
