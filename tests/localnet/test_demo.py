"""The demo's verdict, its options, and its manners when it is interrupted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil
import pytest

from localnet.audit import differing_heights
from localnet.demo.__main__ import main
from localnet.demo.report import DemoReport, RoundRow, WorkerRow, find_problems, write_report
from localnet.homes import create_homes
from localnet.processes import ProcessName, descendants, wait_gone
from localnet.state import save_state

ROUND = RoundRow(
    round_index=0,
    height=30,
    state_root="00" * 32,
    workers=(WorkerRow("outer1aa", "paid", 100, 5, 2.0), WorkerRow("outer1bb", "absent", 0, 0, 0.0)),
    payload_bytes=100,
    fp32_bytes=4000,
    paid=5,
)
GOOD = DemoReport(
    nodes=4,
    validators=4,
    workers=2,
    height=90,
    rounds_wanted=6,
    rounds_settled=6,
    val_loss_first=4.6,
    val_loss_last=1.8,
    bigram_loss=2.4,
    payload_bytes=100,
    fp32_bytes=2000,
    compression=20.0,
    text_bytes=1,
    parameters=1,
    app_hashes_equal=True,
    app_hashes_compared=90,
    supply_conserved=True,
    expired_gone=True,
    checkpoint_root_verified=True,
    checkpoints_stored=6,
    checkpoints_kept=3,
    workers_with_logs=2,
    wall_s=300.0,
    rounds=(ROUND,),
    files={},
)


@pytest.fixture
def build() -> Iterator[Path]:
    with TemporaryDirectory(prefix="on-") as name:
        yield Path(name)


def test_a_report_with_everything_as_it_should_be_has_no_problem() -> None:
    assert find_problems(GOOD) == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"rounds_settled": 5}, "5 rounds were settled"),
        ({"val_loss_last": 2.4}, "not below the bigram loss"),
        ({"val_loss_last": 4.7, "bigram_loss": 5.0}, "did not fall"),
        ({"payload_bytes": 101}, "smaller than fp32"),
        ({"payload_bytes": 0}, "smaller than fp32"),
        ({"app_hashes_equal": False}, "app hashes"),
        ({"supply_conserved": False}, "supply"),
        ({"expired_gone": False}, "expired deal"),
        ({"checkpoint_root_verified": False}, "checkpoint's root"),
        ({"validators": 3}, "3 validators"),
        ({"checkpoints_stored": 5}, "5 checkpoints were stored"),
        ({"checkpoints_kept": 4}, "4 checkpoints are kept"),
        ({"checkpoints_kept": 2}, "2 checkpoints are kept"),
        ({"workers_with_logs": 1}, "1 of 2 workers"),
        ({"wall_s": 601.0}, "601 s"),
        ({"rounds": (msgspec.structs.replace(ROUND, workers=ROUND.workers[1:]),)}, "nobody was paid"),
        ({"val_loss_last": float("nan")}, "not below the bigram loss"),
    ],
)
def test_each_thing_that_is_not_as_it_should_be_is_named(changed: dict[str, object], words: str) -> None:
    problems = find_problems(msgspec.structs.replace(GOOD, **changed))
    assert any(words in problem for problem in problems), problems


def test_the_report_is_json_with_the_documented_keys(tmp_path: Path) -> None:
    write_report(GOOD, tmp_path / "build" / "demo.json")
    document = json.loads((tmp_path / "build" / "demo.json").read_bytes())
    wanted = {"validators", "height", "rounds_settled", "val_loss_first", "val_loss_last", "bigram_loss"}
    wanted |= {"payload_bytes", "fp32_bytes", "app_hashes_equal", "supply_conserved", "expired_gone"}
    assert wanted | {"checkpoint_root_verified", "wall_s"} <= document.keys()


def test_heights_differ_where_any_node_has_another_hash_or_none() -> None:
    assert differing_heights({1: ["a", "a"], 2: ["a", "b"], 3: ["", ""]}) == [2, 3]


@pytest.mark.parametrize("words", [["--rounds", "5"], ["--nodes", "0"], ["--workers", "17"], ["--rounds", "many"]])
def test_options_out_of_range_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(words)
    assert refusal.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_a_text_that_cannot_be_read_or_is_too_short_is_a_clear_failure(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--build", str(build), "--text", str(build / "absent")]) == 1
    assert "absent" in capsys.readouterr().out
    (build / "short").write_text("too short")
    assert main(["--build", str(build), "--text", str(build / "short")]) == 1
    assert "9 bytes" in capsys.readouterr().out


def test_the_folder_of_a_running_demo_is_left_alone(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = build / "demo" / "net"
    state = create_homes(home, nodes=1, base_port=26600)
    save_state(home, msgspec.structs.replace(state, owner=ProcessName.of(os.getpid())))
    assert main(["--build", str(build)]) == 1
    assert "a demo is running" in capsys.readouterr().out
    assert (home / "node0").exists()


@pytest.mark.network
def test_an_interrupted_demo_leaves_no_process(build: Path) -> None:
    command = [sys.executable, "-m", "localnet.demo", "--nodes", "2", "--workers", "2", "--build", str(build)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if "height" in line and "round" in line:
                break
        below = descendants(psutil.Process(process.pid))
        assert len(below) >= 10, "".join(said)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "nothing is left running" in rest
    assert wait_gone(below, timeout_s=0) == []
