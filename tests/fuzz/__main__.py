"""Fuzz every target under coverage guidance: ``python -m tests.fuzz`` (`make fuzz`), needs the extra `fuzz`.

One process for each target, since libFuzzer ends its process. What it found worth keeping stays in build/fuzz/corpus
and is where the next run goes on; an input that breaks a promise is kept in build/fuzz/broken. Afterwards the corpus
runs once more under `coverage`, which says how many lines of the code under test it reaches. Exit status 1 when a
promise was broken.
"""

import argparse
import json
import logging
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
from rich.console import Console
from rich.table import Table

from tests.fuzz.seeds import seeds_of
from tests.fuzz.targets import TARGETS

FOLDER: Final = Path("build/fuzz")
INSTRUMENTED: Final = ("abci_app", "primitives")
UNDER_TEST: Final = (
    *("abci_app/server/frames.py", "abci_app/server/dispatch.py", "abci_app/transactions.py", "abci_app/forms.py"),
    *("abci_app/execution.py", "abci_app/proposals.py", "abci_app/spending.py", "abci_app/signatures.py"),
    *("abci_app/waiting.py", "abci_app/ledger.py", "abci_app/rules/*.py"),
)
MAX_INPUT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one target's process says of itself."""

    target: str
    inputs: int
    edges: int
    """Instrumented branches reached, as libFuzzer counts them."""
    corpus: int
    seconds: float
    broken: str
    """What was raised, where a promise was broken; empty otherwise."""


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.replay:
        return replay(options.targets)
    if options.inside:
        return fuzz(options.targets[0], options.seconds)
    console = Console()
    outcomes = []
    for number, target in enumerate(options.targets, start=1):
        console.print(f"fuzz {number}/{len(options.targets)}: {target} for {options.seconds} s")
        outcomes.append(run_target(target, options.seconds))
    lines = measure_lines(options.targets)
    report(console, outcomes, lines)
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=45, help="time for each target (default: 45)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown or options.seconds < 1:
        parser.error(f"unknown target {unknown[0]}" if unknown else "--seconds should be 1 or more")
    options.targets = options.targets or list(TARGETS)
    return options


def corpus_of(target: str) -> Path:
    return FOLDER / "corpus" / target


def run_target(target: str, seconds: int) -> Outcome:
    """One process of libFuzzer, started with the seeds and with what earlier runs found."""
    corpus = corpus_of(target)
    corpus.mkdir(parents=True, exist_ok=True)
    (FOLDER / "broken").mkdir(exist_ok=True)
    for seed in seeds_of(target):
        (corpus / sha256(seed).hexdigest()[:40]).write_bytes(seed)
    log = FOLDER / f"{target}.log"
    started = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz", target, "--inside", "--seconds", str(seconds)]
    with log.open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    text = log.read_text(errors="replace")
    return Outcome(
        target=target,
        inputs=_last_number(r"stat::number_of_executed_units:\s*(\d+)", text),
        edges=_last_number(r" cov: (\d+)", text),
        corpus=len(list(corpus.iterdir())),
        seconds=round(time.monotonic() - started, 1),
        broken="" if code == 0 else _reason(text, code, log),
    )


def fuzz(target: str, seconds: int) -> int:
    """Inside a target's process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        for name in [name for name in sys.modules if name.split(".")[0] in (*INSTRUMENTED, "tests")]:
            del sys.modules[name]
        from tests.fuzz.targets import TARGETS as INSTRUMENTED_TARGETS
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-artifact_prefix={FOLDER / 'broken' / target}-",
        "-print_final_stats=1",
        "-timeout=30",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus_of(target))], INSTRUMENTED_TARGETS[target])
    atheris.Fuzz()
    return 0


def replay(targets: list[str]) -> int:
    """Run each target on its whole corpus; what it raises escapes."""
    for target in targets:
        for path in sorted(corpus_of(target).iterdir()):
            TARGETS[target](path.read_bytes())
    return 0


def measure_lines(targets: list[str]) -> dict[str, float]:
    """Per cent of the lines of each file under test that the corpora reach."""
    data, found = FOLDER / "coverage.data", FOLDER / "coverage.json"
    tool = [sys.executable, "-m", "coverage"]
    where = [f"--data-file={data}"]
    run = [*tool, "run", *where, f"--include={','.join(UNDER_TEST)}", "-m", "tests.fuzz", "--replay", *targets]
    if subprocess.run(run, check=False).returncode != 0:
        return {}
    subprocess.run([*tool, "json", *where, "-q", "-o", found], check=True)
    files = json.loads(found.read_text())["files"]
    return {name: round(entry["summary"]["percent_covered"], 1) for name, entry in sorted(files.items())}


def report(console: Console, outcomes: list[Outcome], lines: dict[str, float]) -> None:
    """A table for people, build/fuzz.json for programs."""
    table = Table("target", "inputs", "per second", "branches", "corpus", "broken", title="fuzzing")
    for one in outcomes:
        rate = f"{one.inputs / max(one.seconds, 0.1):,.0f}"
        table.add_row(one.target, f"{one.inputs:,}", rate, f"{one.edges:,}", f"{one.corpus:,}", one.broken or "no")
    console.print(table)
    total = sum(one.inputs for one in outcomes)
    console.print(f"{total:,} inputs tried; lines reached by the corpora, of those in each file:")
    for name, percent in lines.items():
        console.print(f"  {percent:5.1f} %  {name}")
    document = {"inputs": total, "targets": [asdict(one) for one in outcomes], "line_coverage_percent": lines}
    (FOLDER.parent / "fuzz.json").write_text(json.dumps(document, indent=2) + "\n")


def _last_number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _reason(text: str, code: int, log: Path) -> str:
    found = re.findall(r"^(?:[A-Za-z_.]*(?:Error|Exception)\b.*|.*No module named.*)$", text, re.MULTILINE)
    return f"{found[-1].strip() if found else f'exit status {code}'} (see {log})"


if __name__ == "__main__":
    sys.exit(main())
