"""make bench-chain on real engines, with windows too short to say anything about speed."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from benchmarks.chain.kvstore import kvstore_offer
from benchmarks.chain.plan import Load
from benchmarks.chain.runs import run_one
from localnet.load.drive import Pace
from localnet.processes import descendants, wait_gone

pytestmark = pytest.mark.network
ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 60.0
STOP_S: Final = 20.0
GONE_S: Final = 5.0
"""Python's own helper for process pools ends a moment after us."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks/bench_chain.py"), *map(str, arguments)]


@pytest.fixture
def measuring(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of some length, under way: its network makes blocks."""
    arguments = command("--only", "latency", "--seconds", 20, "--out", tmp_path / "r.json")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield process
        process.kill()


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return descendants(psutil.Process(process.pid))


def wait_for_home(process: subprocess.Popen[str]) -> Path:
    """The folder of the node whose engine runs."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        for each in below(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                if each.name().startswith("cometbft") and "start" in each.cmdline():
                    return Path(each.cwd())
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    pytest.fail(f"no engine within {START_S} s")


def test_a_part_is_measured_and_shown_and_its_figures_are_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = subprocess.run(
        command("--only", "flood", "--rounds", 1, "--seconds", 1, "--out", out),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_bytes())
    assert report["problems"] == []
    assert 0.3 < report["honest_ratio_under_flood"] < 3
    assert report["flood_tps"] > 100
    assert report["go_tps_1"] is None
    quiet, flooded = report["runs"]
    assert (quiet["flood_tps"], flooded["part"], flooded["application"]) == (0.0, "flood", "outerstep")
    assert flooded["committed"] == flooded["submitted"] > 1000, "only honest ones count"
    assert min(run["rss_before_mib"] for run in report["runs"]) > 20
    assert "honest share beside" in done.stdout

    shown = subprocess.run(command("--show", "--out", out), capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[-5:] == done.stdout.splitlines()[-5:]


async def test_the_go_kvstore_executes_every_transaction_without_a_process_of_ours() -> None:
    pace = Pace(rate=300.0, in_flight=1000, seconds=1.0, warm_up_s=0.5)
    load = Load(part="throughput", application="kvstore", nodes=1, round_index=0, pace=pace)
    run = await run_one(load, kvstore_offer(2000, tx_bytes=200, lanes=4), [], lambda share: None)
    assert run.clean
    assert run.submitted > 300
    assert (run.cpu_s_app, run.rss_after_mib) == (0.0, 0.0)
    assert run.cpu_s_engine > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process_no_folder_and_no_file(
    measuring: subprocess.Popen[str], number: signal.Signals, tmp_path: Path
) -> None:
    folder = wait_for_home(measuring).parent
    assert folder.name.startswith("bench-")
    started = below(measuring)
    measuring.send_signal(number)
    _, errors = measuring.communicate(timeout=STOP_S)
    assert measuring.returncode == 130
    assert "nothing is left running" in errors
    assert "Traceback" not in errors
    assert wait_gone(started, timeout_s=GONE_S) == []
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
