"""Signatures verified in other processes, many at a time.

Verifying is most of the work of a new transaction. In threads of this process it would have to take the GIL anew after
each signature, which on a busy node costs as much as the signature and holds up the blocks; so it is done elsewhere,
and this process sees a batch go out and come back. What the others say counts as what `verify_record` says here.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog

from abci_app.verifier_process import HEADER
from primitives.keys import verify_record

MOST_PROCESSES: Final = 3
"""More could not be kept busy: the rest of CheckTx takes about a third of the time of a signature, in one thread."""
RESTART_DELAY_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 5.0
"""A process that takes so long, a thousand times the usual, is given up: consensus waits for CheckTx."""
STOP_S: Final = 2.0

_log = structlog.get_logger()


class Verifiers(Protocol):
    """Whoever verifies signatures for CheckTx."""

    async def start(self) -> None: ...
    async def verify(self, records: Sequence[bytes]) -> Sequence[int]: ...
    async def close(self) -> None: ...


def default_count() -> int:
    """Processes that this machine is good for: one core is left to the application and the engine."""
    return max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) - 1))


class VerifierProcesses:
    """The processes. One that dies is replaced, and what it had not answered is verified in a thread of this one."""

    def __init__(self, count: int | None = None) -> None:
        self._workers = [_Worker() for _ in range(count or default_count())]

    async def start(self) -> None:
        """Start all. What cannot be started is tried again later."""
        await asyncio.gather(*(worker.start() for worker in self._workers))

    async def verify(self, records: Sequence[bytes]) -> Sequence[int]:
        """For each record of 128 bytes whether its signature is good (1) or not (0)."""
        alive = [worker for worker in self._workers if worker.is_alive]
        if alive:
            worker = min(alive, key=lambda worker: worker.unanswered)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    return await worker.verify(records)
            except TimeoutError:
                worker.kill()
            except _WorkerDied:
                _log.debug("a batch without an answer is verified in a thread", signatures=len(records))
        return await asyncio.to_thread(lambda: [int(verify_record(record)) for record in records])

    async def close(self) -> None:
        """Let all end, and wait for it."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


class _WorkerDied(Exception):
    """The process has ended, or answers what it was not asked."""


class _Worker:
    """One process and what it has not answered yet, in order."""

    def __init__(self) -> None:
        self.is_alive = False
        self.unanswered = 0
        """Signatures."""
        self._asked: deque[tuple[bytes, asyncio.Future[bytes]]] = deque()
        """(header of the batch, what becomes of it)."""
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._start_process()
        self._keeper = asyncio.create_task(self._keep())

    async def verify(self, records: Sequence[bytes]) -> bytes:
        """Raises: _WorkerDied."""
        stdin = self._stdin
        if stdin is None or stdin.is_closing():
            raise _WorkerDied
        self._number = (self._number + 1) & 0xFFFFFFFF
        header = HEADER.pack(self._number, len(records))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append((header, answer))
        self.unanswered += len(records)
        stdin.write(header + b"".join(records))
        return await answer

    def kill(self) -> None:
        """Let another process take its place."""
        if self.is_alive and self._process is not None:
            self.is_alive = False
            with suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        self.is_alive = False
        if self._keeper is not None:
            self._keeper.cancel()
        if self._process is not None and self._stdin is not None:
            self._stdin.close()
            try:
                async with asyncio.timeout(STOP_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    @property
    def _stdin(self) -> asyncio.StreamWriter | None:
        return None if self._process is None else self._process.stdin

    async def _start_process(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "abci_app.verifier_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            _log.error("a process that verifies signatures cannot be started; threads do it", reason=str(error))
        else:
            self.is_alive = True

    async def _keep(self) -> None:
        """Read answers; when the process dies, start another one."""
        while True:
            if self.is_alive and self._process is not None:
                reason = await self._read_answers(self._process)
                _log.error("a process that verifies signatures is lost; another one is started", reason=reason)
                self.kill()
                self._give_up()
                await self._process.wait()
            await asyncio.sleep(RESTART_DELAY_S)
            await self._start_process()

    def _give_up(self) -> None:
        """Let everybody know who waits for an answer."""
        for _, answer in self._asked:
            if not answer.done():
                answer.set_exception(_WorkerDied())
        self._asked.clear()
        self.unanswered = 0

    async def _read_answers(self, process: asyncio.subprocess.Process) -> str:
        """Returns why there will be no more."""
        assert process.stdout is not None
        try:
            while True:
                header = await process.stdout.readexactly(HEADER.size)
                if not self._asked or header != self._asked[0][0]:
                    return "it answers what it was not asked"
                _, count = HEADER.unpack(header)
                good = await process.stdout.readexactly(count)
                _, answer = self._asked.popleft()
                self.unanswered -= count
                if not answer.done():
                    answer.set_result(good)
        except (asyncio.IncompleteReadError, OSError):
            return "it has ended"
