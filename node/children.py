"""Child processes that never outlive their parent, and groups of them that are kept running together."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

logger = logging.getLogger("outerstep.supervisor")

Look = Callable[[], str | None]
"""A quick look at something: what is wrong with it, or None."""

STOP_S: Final = 15.0
"""How long a child may take to stop in order before it is killed."""
AFTER_FAILURE_S: Final = 3.0
"""The same once another of its group has died: CometBFT without its application often never stops by itself."""
QUICK_S: Final = 20.0
"""A failure within this time after the start is a quick one."""
MAX_QUICK_FAILURES: Final = 5
FIRST_BACKOFF_S: Final = 0.2
MAX_BACKOFF_S: Final = 10.0
POLL_S: Final = 0.05
LOOK_S: Final = 1.0
"""How often a running group is looked at for hindrances and failures."""
STILL_WAITING_S: Final = 15.0
MAX_LOG_BYTES: Final = 64 * 1024 * 1024
PR_SET_PDEATHSIG: Final = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class GivenUp(Exception):
    """A group failed again and again; the text names the children that ended and shows their last words."""

    def __init__(self, text: str, logs: str) -> None:
        super().__init__(text)
        self.logs = logs
        """More of the end of their logs, to look for known troubles in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One program to run. `healthy` says whether it does its work (called until it does)."""

    name: str
    command: Sequence[str]
    folder: Path
    """Working folder."""
    log: Path
    pid_file: Path
    healthy: Callable[[], Awaitable[bool]]
    before_start: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A running program in its own process group; killed by the kernel when this process dies (Linux)."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._process: asyncio.subprocess.Process | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: killed by that signal."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        self.spec.before_start()
        rotate_log(self.spec.log)
        with self._open_log() as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                cwd=self.spec.folder,
                env={**os.environ, **self.spec.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()),
            )
        try:
            self.spec.pid_file.write_text(f"{self._process.pid}\n")
        except OSError as error:
            logger.warning("%s cannot be written: %s", self.spec.pid_file, error.strerror)
        logger.info("%s started, process %d", self.spec.name, self._process.pid)

    def _open_log(self) -> BinaryIO:
        return self.spec.log.open("ab")

    async def until_healthy(self) -> bool:
        """True once it is healthy, False when it has ended before."""
        told = time.monotonic()
        while self.exit_code is None:
            if await self.spec.healthy():
                return self.exit_code is None
            if time.monotonic() - told > STILL_WAITING_S:
                told = time.monotonic()
                logger.info("%s is not ready yet; see %s", self.spec.name, self.spec.log)
            await asyncio.sleep(POLL_S)
        return False

    async def wait(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to its whole group when that does not help; harmless when it has ended."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), grace_s)
            except TimeoutError:
                logger.warning("%s did not stop within %.0f s: killed", self.spec.name, grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        self.spec.pid_file.unlink(missing_ok=True)


class Group:
    """Children that start in order, each once the one before is healthy, and restart together when one ends."""

    def __init__(
        self,
        name: str,
        specs: Sequence[ChildSpec],
        *,
        hindrance: Look = lambda: None,
        failure: Look = lambda: None,
    ) -> None:
        """`hindrance`: they are stopped while it has something to say, however long that is.

        `failure`: they are started again when it has something to say, as if one of them had ended.
        """
        self.name = name
        self.children = [Child(spec) for spec in specs]
        self.ready = asyncio.Event()
        """Set while all are healthy."""
        self._hindrance = hindrance
        self._failure = failure

    async def keep_running(self) -> None:
        """For ever.

        Raises: GivenUp after MAX_QUICK_FAILURES failures in a row that nobody but the children caused.
        """
        quick, backoff_s = 0, FIRST_BACKOFF_S
        while True:
            await self._until_unhindered()
            started = time.monotonic()
            reason = await self._run_once()
            ended = {child.spec.name: child.exit_code for child in self.children if child.exit_code is not None}
            words = [reason] if reason else [f"{name} ended with code {code}" for name, code in ended.items()]
            logger.warning("%s: %s", self.name, ", ".join(words))
            await self.stop(after_failure=bool(ended))
            by_signal = any(code < 0 for code in ended.values() if code is not None)
            is_quick = time.monotonic() - started < QUICK_S and not by_signal and self._hindrance() is None
            quick = quick + 1 if is_quick else 0
            if quick >= MAX_QUICK_FAILURES:
                raise self._given_up(ended)
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S) if is_quick else FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s)

    async def _until_unhindered(self) -> None:
        told = ""
        while reason := self._hindrance():
            if not told:
                logger.warning("%s: waits, since %s", self.name, reason)
            told = reason
            await asyncio.sleep(LOOK_S)

    async def _run_once(self) -> str:
        """Start all and wait until one has ended ("") or there is a reason to stop them."""
        self._failure()  # what is to be said of the run before does not count for this one
        try:
            if not await self._start():
                return ""
        except OSError as error:
            return f"cannot be started: {error}"
        self.ready.set()
        ends = [asyncio.ensure_future(child.wait()) for child in self.children]
        try:
            while not (await asyncio.wait(ends, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED))[0]:
                if reason := self._hindrance() or self._failure():
                    return reason
            return ""
        finally:
            self.ready.clear()
            for end in ends:
                end.cancel()

    async def stop(self, *, after_failure: bool = False) -> None:
        """Stop the last started first."""
        for child in reversed(self.children):
            await child.stop(AFTER_FAILURE_S if after_failure else STOP_S)

    async def _start(self) -> bool:
        for child in self.children:
            await child.start()
            if not await child.until_healthy():
                return False
        return all(child.exit_code is None for child in self.children)

    def _given_up(self, ended: Mapping[str, int | None]) -> GivenUp:
        text = [f"{self.name} failed {MAX_QUICK_FAILURES} times in a row; giving up"]
        logs: list[str] = []
        for child in self.children:
            if child.spec.name in ended:
                end = last_lines(child.spec.log, 100)
                logs += end
                text.append(f"from {child.spec.log}:")
                text += [f"    {line}" for line in last_words(end)]
        return GivenUp("\n".join(text), "\n".join(logs))


def last_words(lines: Sequence[str]) -> Sequence[str]:
    """What says most: the beginning of a Go panic where there is one, else the last lines."""
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].startswith("panic:"):
            return lines[number : number + 3]
    return lines[-8:]


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a text file, decoded as well as it goes; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def rotate_log(path: Path) -> None:
    """Keep one older part (`.1`) of a log above 64 MiB; safe while a child appends to it.

    A disk that cannot take the older part is no reason to stop the node: the log then stays as it is.
    """
    older = path.with_name(path.name + ".1")
    try:
        if path.stat().st_size < MAX_LOG_BYTES:
            return
        with path.open("r+b") as source, older.open("wb") as target:
            while part := source.read(1 << 20):
                target.write(part)
            target.flush()
            source.truncate(0)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("%s cannot be rotated: %s", path, error.strerror or error)


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    if _libc is None:
        return None
    prctl = _libc.prctl

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
