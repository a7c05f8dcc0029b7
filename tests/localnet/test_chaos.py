"""The chaos run: its plan, its watch, its verdict, and short real runs from the command line, one interrupted."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil
import pytest
from rich.console import Console

from localnet.chaos.__main__ import main
from localnet.chaos.faults import INJECTIONS
from localnet.chaos.findings import ChaosOptions, Findings
from localnet.chaos.plan import ALL_KINDS, DISK_FULL, SINGLE_KINDS, STATE_SYNC, choose_roles, make_plan
from localnet.chaos.report import INTERRUPTED, STALL_LIMIT_S, ChaosReport, judge, write_report
from localnet.chaos.run import Run
from localnet.chaos.watch import Watch
from localnet.homes import HomesError
from localnet.processes import descendants, wait_gone

REQUIRED = {
    "faults",
    "kinds",
    "app_hash_mismatches",
    "lost_txs",
    "double_executions",
    "longest_stall_s",
    "state_sync_ok",
    "partition_ok",
}
GOOD = ChaosReport(
    verdict="incomplete",
    problems=(),
    faults=12,
    kinds=("kill_app",),
    app_hash_mismatches=0,
    lost_txs=0,
    double_executions=0,
    longest_stall_s=2.5,
    state_sync_ok=True,
    partition_ok=True,
    failed=None,
    skipped={},
    kind_counts={"kill_app": 12},
    false_refusals=0,
    supply_conserved=True,
    longest_header_gap_s=2.0,
    heights=900,
    txs_sent=100,
    txs_acknowledged=99,
    txs_in_blocks=101,
    seed=1,
    started="2026-01-01T00:00:00+00:00",
    duration_s=480.0,
    versions={},
    partitions={},
    fault_log=(),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, since a node's Unix socket lies in it."""
    with TemporaryDirectory(prefix="on-") as name:
        yield Path(name)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def changed(**fields: object) -> ChaosReport:
    return judge(msgspec.structs.replace(GOOD, **fields))


# --- plan ---------------------------------------------------------------------------------------------------------
def test_every_kind_comes_once_before_any_comes_again() -> None:
    plan = make_plan(SINGLE_KINDS, 5, 4)
    for _ in range(3):
        assert {fault.kind for fault in itertools.islice(plan, len(SINGLE_KINDS))} == set(SINGLE_KINDS)


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_gives_the_same_faults_and_keeps_node_0_whole(seed: int) -> None:
    first, again = (list(itertools.islice(make_plan(SINGLE_KINDS, seed, 4), 40)) for _ in range(2))
    assert first == again
    assert {fault.node for fault in first} == {0, 1, 2, 3}
    roles = choose_roles(seed, 4)
    assert {fault.node for fault in first if fault.kind == STATE_SYNC} == {roles.sync_node}
    assert {fault.node for fault in first if fault.kind == DISK_FULL} == {roles.disk_node}
    assert len({0, roles.sync_node, roles.disk_node}) == 3


def test_every_kind_can_be_injected() -> None:
    assert set(INJECTIONS) == set(SINGLE_KINDS)


# --- watch --------------------------------------------------------------------------------------------------------
def test_a_stall_is_the_longest_time_without_a_block_at_any_node_that_is_not_disturbed() -> None:
    clock = Clock()
    watch = Watch(2, clock)
    for height, pause_s in ((1, 1.0), (2, 4.0), (3, 2.0)):
        clock.now += pause_s
        watch.saw(0, height)
        watch.saw(1, height)
    assert watch.longest_stall_s == 4.0
    watch.disturb(1)
    clock.now += 50.0
    watch.saw(1, None)
    watch.calm(1)
    clock.now += 3.0
    watch.saw(1, 4)
    assert watch.longest_stall_s == 4.0
    watch.saw(0, 3)
    assert watch.longest_stall_s == 53.0


def test_a_node_that_never_answers_again_stalls_too() -> None:
    clock = Clock()
    watch = Watch(1, clock)
    watch.saw(0, 7)
    clock.now += 9.0
    watch.saw(0, None)
    assert watch.longest_stall_s == 9.0
    assert watch.height == 7


# --- verdict ------------------------------------------------------------------------------------------------------
def test_a_run_in_which_all_was_looked_at_and_held_is_good() -> None:
    report = changed()
    assert (report.verdict, report.problems) == ("held", ())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"app_hash_mismatches": 1}, "differ at 1 heights"),
        ({"lost_txs": 2}, "2 transactions"),
        ({"double_executions": 1}, "double executions"),
        ({"false_refusals": 1}, "told they never would"),
        ({"longest_stall_s": STALL_LIMIT_S + 0.1}, "no block for 30.1 s"),
        ({"state_sync_ok": False}, "state sync"),
        ({"partition_ok": False}, "partition"),
        ({"supply_conserved": False}, "money"),
        ({"failed": "FaultFailed: node1 is lost"}, "node1 is lost"),
        ({"failed": INTERRUPTED, "lost_txs": 1}, "1 transactions"),
    ],
)
def test_whatever_does_not_hold_fails_the_run_and_is_named(fields: dict[str, object], words: str) -> None:
    report = changed(**fields)
    assert report.verdict == "failed"
    assert any(words in problem for problem in report.problems)


@pytest.mark.parametrize(
    "fields",
    [
        {"skipped": {"disk_full": "nothing can be mounted here"}},
        {"app_hash_mismatches": None},
        {"supply_conserved": None},
        {"faults": 0},
    ],
)
def test_a_run_that_left_something_out_is_incomplete(fields: dict[str, object]) -> None:
    assert changed(**fields).verdict == "incomplete"


def test_a_run_that_was_told_to_stop_is_interrupted() -> None:
    assert changed(failed=INTERRUPTED, app_hash_mismatches=None).verdict == "interrupted"


def test_a_report_can_be_written_before_anything_was_found(folder: Path) -> None:
    findings = Findings(options=ChaosOptions(home=folder, report=folder / "deep/chaos.json"))
    findings.failed = "StartFailed: no"
    write_report(findings.report(), findings.options.report)
    written = json.loads(findings.options.report.read_bytes())
    assert written.keys() >= REQUIRED
    assert (written["verdict"], written["failed"], written["lost_txs"]) == ("failed", "StartFailed: no", None)
    assert [path.name for path in (folder / "deep").iterdir()] == ["chaos.json"]


@pytest.mark.parametrize("words", [["--minutes", "0.5"], ["--minutes", "99"], ["--kinds", "kill_app,flood"]])
def test_options_that_make_no_sense_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert words[0] in capsys.readouterr().err


async def test_a_folder_that_is_not_of_a_chaos_run_is_left_alone(folder: Path) -> None:
    (folder / "net").mkdir()
    (folder / "net/thesis.txt").write_text("mine")
    (folder / "other").mkdir()
    run = Run(ChaosOptions(home=folder, report=folder / "r.json"), Console(quiet=True))
    with pytest.raises(HomesError, match="not of a chaos run"):
        await run.everything()
    assert (folder / "net/thesis.txt").read_text() == "mine"
    assert (folder / "other").is_dir()
    assert "not of a chaos run" in json.loads((folder / "r.json").read_bytes())["failed"]


# --- for real -----------------------------------------------------------------------------------------------------
def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "localnet.chaos",
        "--home",
        str(folder / "net"),
        "--report",
        str(folder / "r.json"),
    ]
    return subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.mark.network
def test_a_short_run_holds_and_leaves_only_its_report(folder: Path) -> None:
    kinds = "kill_services,pause_engine,block_sync"
    with start(folder, "--minutes", "1", "--kinds", kinds, "--seed", "3") as run:
        said, _ = run.communicate(timeout=250)
    report = json.loads((folder / "r.json").read_bytes())
    assert report["verdict"] == "held", said
    assert run.returncode == 0, said
    assert set(report["kinds"]) == set(kinds.split(","))
    assert report["faults"] >= 3
    assert report["txs_acknowledged"] > 0
    assert report["txs_in_blocks"] > report["txs_acknowledged"] // 2
    assert not (folder / "net").exists()


@pytest.mark.network
def test_an_interrupted_run_stops_everything_and_says_so(folder: Path) -> None:
    run = start(folder, "--kinds", "pause_node")
    assert run.stdout is not None
    said = []
    for line in run.stdout:
        said.append(line)
        if "pause_node at" in line:
            break
    below = descendants(psutil.Process(run.pid))
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=100)
    assert run.returncode == 130, "".join(said) + rest
    assert len(below) >= 16
    assert wait_gone(below, timeout_s=20) == []
    assert json.loads((folder / "r.json").read_bytes())["failed"] == INTERRUPTED


def test_all_kinds_are_asked_for_by_default() -> None:
    assert ChaosOptions(home=Path(), report=Path()).kinds == ALL_KINDS
