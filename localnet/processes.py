"""Process trees: found again by number and start time, killed whole, never left behind.

A process is named by its id together with its start time, because ids are reused.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil


class ProcessName(msgspec.Struct, frozen=True):
    """A process that can be told from a later one with the same id."""

    pid: int
    started: float
    """Start time as the system reports it, seconds since 1970."""

    @classmethod
    def of(cls, pid: int) -> "ProcessName":
        """Raises: psutil.NoSuchProcess."""
        return cls(pid=pid, started=psutil.Process(pid).create_time())

    def find(self) -> psutil.Process | None:
        """The living process, or None when it is gone (or its id belongs to another one now)."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.started or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.NoSuchProcess:
            return None
        return process


def spawn(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own (Ctrl-C does not reach it) with its output appended to `log`.

    On Linux the system ends it when the thread that called this ends, even by SIGKILL.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """The living processes below `process`; empty when it is gone."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_tree(process: psutil.Process) -> None:
    """SIGKILL `process` and all below it, the parent first so that it restarts nothing."""
    below = descendants(process)
    for victim in (process, *below, *descendants(process)):
        kill(victim)
    psutil.wait_procs([process, *below], timeout=10)


def kill(process: psutil.Process) -> None:
    """SIGKILL; nothing when it is gone already."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def stop_trees(processes: Sequence[psutil.Process], *, grace_s: float = 15.0) -> None:
    """Ask all of them to end (SIGTERM), wait, then kill what is left of them and of all that was below them."""
    below = [child for process in processes for child in descendants(process)]
    for process in processes:
        try:
            process.send_signal(signal.SIGTERM)
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=grace_s)
    for process in processes:
        below += descendants(process)
    for survivor in (*processes, *below):
        kill(survivor)
    psutil.wait_procs([*processes, *below], timeout=10)


def _end_with_parent() -> None:
    """In the new process, before it becomes `command`: PR_SET_PDEATHSIG, see prctl(2)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
