"""Process trees end whole, also when their members resist."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from localnet.processes import ProcessName, descendants, kill_tree, spawn, stop_trees, wait_gone

READY = "print('ready', flush=True)"
SLEEP = "import signal; signal.pause()"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', '''import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
{READY}
signal.pause()'''])
import signal; signal.pause()
"""


def start(code: str, log: Path) -> psutil.Popen:
    return spawn([sys.executable, "-c", code], log)


def start_family(log: Path) -> tuple[psutil.Popen, list[psutil.Process]]:
    """A parent with a child that ignores SIGTERM; returns once the child has said so."""
    parent = start(PARENT, log)
    with log.open() as lines:
        while lines.readline() != "ready\n":
            assert parent.poll() is None, "the parent ended early"
    return parent, descendants(parent)


def test_killing_a_tree_leaves_none_of_its_processes(tmp_path: Path) -> None:
    parent, children = start_family(tmp_path / "log")
    assert len(children) == 1
    kill_tree(parent)
    assert wait_gone([parent, *children], timeout_s=0) == []


def test_stopping_ends_a_child_that_ignores_the_signal(tmp_path: Path) -> None:
    parent, children = start_family(tmp_path / "log")
    stop_trees([parent], grace_s=5)
    assert parent.returncode == -signal.SIGTERM
    assert wait_gone(children, timeout_s=0) == []


def test_stopping_what_has_ended_already_is_harmless(tmp_path: Path) -> None:
    process = start("pass", tmp_path / "log")
    process.wait()
    stop_trees([process])
    kill_tree(process)
    assert process.returncode == 0


def test_a_name_does_not_match_another_process_with_the_same_id() -> None:
    ours = ProcessName.of(os.getpid())
    found = ours.find()
    assert found is not None
    assert found.pid == os.getpid()
    assert ProcessName(pid=ours.pid, started=ours.started - 1).find() is None


def test_a_name_of_an_ended_process_finds_nothing(tmp_path: Path) -> None:
    process = start(SLEEP, tmp_path / "log")
    name = ProcessName.of(process.pid)
    kill_tree(process)
    assert name.find() is None


def test_a_process_ends_when_the_one_that_started_it_is_killed(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys; from localnet.processes import spawn\n"
        f"p = spawn([sys.executable, '-c', 'import signal; signal.pause()'], Path({str(tmp_path / 'inner')!r}))\n"
        "print(p.pid, flush=True); import signal; signal.pause()"
    )
    outer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert outer.stdout is not None
    inner = psutil.Process(int(outer.stdout.readline()))
    outer.kill()
    outer.wait()
    outer.stdout.close()
    assert wait_gone([inner], timeout_s=10) == []
