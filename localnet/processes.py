"""Process trees: found again by number and start time, killed whole, never left behind.

A process is named by its id together with its start time, because ids are reused.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

_LIBC = ctypes.CDLL(None)


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
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    *,
    outlives_us: bool = False,
) -> psutil.Popen:
    """Start `command` in a session of its own (Ctrl-C does not reach it) with its output appended to `log`.

    On Linux the system ends it when the thread that called this ends, even by SIGKILL, unless it `outlives_us`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return psutil.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" and not outlives_us else None,
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
    kill(process)
    for victim in below:
        below += [child for child in descendants(victim) if child not in below]
        kill(victim)
    wait_gone([process, *below], timeout_s=10)


def kill(process: psutil.Process) -> None:
    """SIGKILL; nothing when it is gone already."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def pause(process: psutil.Process) -> None:
    """SIGSTOP; nothing when it is gone already."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()


def resume(process: psutil.Process) -> None:
    """SIGCONT; nothing when it is gone already, or runs."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()


def stop_trees(processes: Sequence[psutil.Process], *, grace_s: float = 15.0) -> None:
    """Ask all of them to end (SIGTERM), wait, then kill what is left of them and of all that was below them."""
    below = [child for process in processes for child in descendants(process)]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    for process in wait_gone(processes, timeout_s=grace_s):
        kill_tree(process)
    for survivor in wait_gone(below, timeout_s=1.0):
        kill_tree(survivor)


def wait_gone(processes: Sequence[psutil.Process], *, timeout_s: float) -> list[psutil.Process]:
    """Wait until the processes have ended, reaping those that are our own children. Returns those still alive.

    A zombie counts as gone: where process 1 does not reap orphans they stay zombies for ever.
    """
    deadline = time.monotonic() + timeout_s
    alive = [process for process in processes if not _is_gone(process)]
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = [process for process in alive if not _is_gone(process)]
    return alive


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C inside the block, so that an impatient second one does not leave half of it undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_gone(process: psutil.Process) -> bool:
    if isinstance(process, psutil.Popen):
        return process.poll() is not None
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end_with_parent() -> None:
    """In the new process, before it becomes `command`: PR_SET_PDEATHSIG, see prctl(2)."""
    _LIBC.prctl(1, signal.SIGTERM)
