"""The chain under load beside CometBFT's Go kvstore: `make bench-chain [ARGS="--quick"]`; --help says what else.

Exit status: 0 measured; 1 a run lost or failed a transaction, or could not be made; 130 interrupted.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chain.commits import CommitTimes, measure_commits
from benchmarks.chain.errors import BenchError
from benchmarks.chain.machine import describe_machine
from benchmarks.chain.options import Options, parse_options
from benchmarks.chain.plan import make_plan
from benchmarks.chain.prepared import Prepared
from benchmarks.chain.progress import Progress
from benchmarks.chain.report import ChainReport, ReportError, figures, find_problems, read_report, write_report
from benchmarks.chain.runs import Run, run_one
from benchmarks.chain.tables import commit_line, run_line, show_report
from localnet.load.errors import LoadError
from localnet.ports import PortError
from node.errors import SetupError

EXPECTED: Final = (BenchError, LoadError, PortError, SetupError, OSError)
"""What can go wrong without being a bug of this program: said in a sentence, and the next load is tried."""
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        report = read_report(options.out) if options.show else measure(options)
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running, nothing was written", file=sys.stderr)
        return INTERRUPTED
    except (ReportError, SetupError) as error:
        print(error, file=sys.stderr)
        return 1
    if not options.show:
        write_report(report, options.out)
    show_report(console, report)
    console.print(f"{options.out}", markup=False, highlight=False, soft_wrap=True)
    return 1 if report.problems else 0


def measure(options: Options) -> ChainReport:
    """Run everything that was asked for, one after the other.

    Raises: SetupError when there is no engine.
    """
    began_s, machine, progress = time.monotonic(), describe_machine(), Progress()
    runs, problems = _run_loads(options, progress)
    commits = list(_time_commits(options, progress)) if "commits" in options.parts else []
    progress.clear()
    return ChainReport(
        **msgspec.structs.asdict(figures(runs, commits)),
        problems=tuple(problems),
        seconds=time.monotonic() - began_s,
        rounds=options.rounds,
        window_seconds=options.seconds,
        machine=machine,
        runs=tuple(runs),
        commits=tuple(commits),
    )


def _run_loads(options: Options, progress: Progress) -> tuple[list[Run], list[str]]:
    """The runs, and what is wrong with them."""
    prepared, plan = Prepared(progress.tell), make_plan(options)
    runs: list[Run] = []
    problems: list[str] = []
    for number, load in enumerate(plan, start=1):
        text = f"[{number}/{len(plan)}] {load.name}"
        offer, flood_txs = prepared.offer(load), prepared.flood_txs(load)
        progress.tell(text)
        try:
            run = uvloop.run(run_one(load, offer, flood_txs, partial(progress.tell, text)))
        except EXPECTED as error:
            found = [f"{load.name}: {error}"]
        else:
            runs.append(run)
            found = find_problems(run, options.seconds)
            progress.clear()
            print(run_line(run), flush=True)
        progress.clear()
        for problem in found:
            print(f"PROBLEM: {problem}", flush=True)
        problems += found
    return runs, problems


def _time_commits(options: Options, progress: Progress) -> Iterator[CommitTimes]:
    for accounts in options.accounts:
        text = f"commits: {accounts} accounts"
        progress.tell(text)
        times = measure_commits(accounts, partial(progress.tell, text))
        progress.clear()
        print(commit_line(times), flush=True)
        yield times


if __name__ == "__main__":
    sys.exit(main())
