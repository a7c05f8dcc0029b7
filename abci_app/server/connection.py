"""One connection: requests in, answers out in the same order.

A read may hold many frames. All of them are parsed, then answered as a batch with one write. Of a run of CheckTx inside
a batch the signatures are verified together, in other processes; everything else is answered one by one, so a call sees
what the calls before it did. Reading stops while too much waits, writing waits while the other side does not read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import groupby
from typing import Final, cast

import structlog

from abci_app.execution import Unverified
from abci_app.server.dispatch import Call, Dispatcher, Lane, RequestError, exception_answer
from abci_app.server.frames import FrameError, FrameParser
from abci_app.verifiers import Verifiers

MAX_BATCH: Final = 512
"""Requests that are answered with one write."""
MAX_WAITING: Final = 2048
"""Requests that may wait before reading pauses."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes of requests."""
CHECKS_AT_ONCE: Final = 64
"""CheckTx calls whose signatures are verified together, and after which others get their turn."""
CHECK_BYTES_AT_ONCE: Final = 64 * 1024
"""The same in bytes of requests; one call may have more."""

_log = structlog.get_logger()


class Lanes:
    """Who does the work, shared by all connections."""

    def __init__(self, dispatcher: Dispatcher, verifiers: Verifiers, pool: Executor, consensus: Executor) -> None:
        self.dispatcher = dispatcher
        self.verifiers = verifiers
        self._pool = pool
        self._consensus = consensus

    def submit(self, call: Call) -> Future[bytes]:
        executor = self._consensus if call.lane is Lane.CONSENSUS else self._pool
        return executor.submit(self.dispatcher.answer, call)


class Connection(asyncio.Protocol):
    """Serves one peer until it leaves or sends what is not ABCI."""

    def __init__(
        self, lanes: Lanes, on_failure: Callable[[BaseException], None], on_close: Callable[["Connection"], None]
    ) -> None:
        self._lanes = lanes
        self._on_failure = on_failure
        self._on_close = on_close
        self._parser = FrameParser()
        self._inbox: deque[Call | RequestError | FrameError] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self.carried_consensus = False
        """Whether any call of the consensus lane came: then the end of this connection is the end of its engine."""
        self._transport: asyncio.Transport
        self._worker: asyncio.Task[None]

    # --- called by the event loop -------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not derived from asyncio's
        self._worker = asyncio.get_running_loop().create_task(self._serve())
        self._worker.add_done_callback(self._report)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._parser.feed(data):
                call = Call(message)
                self.carried_consensus |= call.lane is Lane.CONSENSUS
                self._inbox.append(call)
                self._waiting_bytes += len(message)
        except (FrameError, RequestError) as error:
            self._inbox.append(error)
            self._pause_reading()
        if len(self._inbox) > MAX_WAITING or self._waiting_bytes > MAX_WAITING_BYTES:
            self._pause_reading()
        if self._inbox:
            self._arrived.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._worker.cancel()
        self._on_close(self)

    # --- our side -----------------------------------------------------------------------------------------------
    def abort(self) -> None:
        """Drop the connection now."""
        self._transport.abort()

    async def _serve(self) -> None:
        while True:
            await self._arrived.wait()
            await self._writable.wait()
            calls, refusal = self._take_batch()
            answers = await self._answer(calls)
            if refusal is not None:
                _log.warning("connection refused", reason=str(refusal))
                self._transport.write(b"".join([*answers, exception_answer(str(refusal))]))
                self._transport.close()
                return
            self._transport.write(b"".join(answers))

    def _take_batch(self) -> tuple[list[Call], RequestError | FrameError | None]:
        """The next requests, and what makes this connection end after them, if anything."""
        calls: list[Call] = []
        while self._inbox and len(calls) < MAX_BATCH:
            item = self._inbox.popleft()
            if not isinstance(item, Call):
                return calls, item
            calls.append(item)
            self._waiting_bytes -= item.size
        if not self._inbox:
            self._arrived.clear()
        if len(self._inbox) <= MAX_WAITING // 2 and self._waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._resume_reading()
        return calls, None

    async def _answer(self, batch: Sequence[Call]) -> list[bytes]:
        answers: list[bytes] = []
        for light, group in groupby(batch, key=lambda call: call.lane in (Lane.CHECK, Lane.INLINE)):
            calls = list(group)
            if not light:
                for call in calls:
                    answers.append(await self._run(call))
            elif any(call.lane is Lane.CHECK for call in calls):
                answers += await self._check_all(calls)
            else:
                answers.append(self._lanes.dispatcher.answer(*calls))
        return answers

    async def _check_all(self, calls: Sequence[Call]) -> list[bytes]:
        parts = []
        for part in _parts(calls):
            parts.append(asyncio.create_task(self._check(part)))
            await asyncio.sleep(0)
        return await asyncio.gather(*parts)

    async def _check(self, calls: Sequence[Call]) -> bytes:
        dispatcher = self._lanes.dispatcher
        begun = [dispatcher.begin(call) for call in calls]
        records = [each.record for each in begun if isinstance(each, Unverified)]
        if not records:
            return b"".join(cast(list[bytes], begun))
        good = iter(await self._lanes.verifiers.verify(records))
        return b"".join(
            dispatcher.end(each, good=bool(next(good))) if isinstance(each, Unverified) else each for each in begun
        )

    async def _run(self, call: Call) -> bytes:
        """Answer in a thread. A failure there is reported even when this connection is gone by then."""
        loop = asyncio.get_running_loop()
        future = self._lanes.submit(call)

        def watch(done: Future[bytes]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                loop.call_soon_threadsafe(self._on_failure, error)

        future.add_done_callback(watch)
        return await asyncio.wrap_future(future)

    def _report(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._on_failure(error)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        refused = bool(self._inbox) and not isinstance(self._inbox[-1], Call)
        if not self._reading and not refused and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()


def _parts(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """`calls` in order, cut where a part has enough calls or bytes."""
    start, size = 0, 0
    for end, call in enumerate(calls):
        if end > start and (end - start == CHECKS_AT_ONCE or size + call.size > CHECK_BYTES_AT_ONCE):
            yield calls[start:end]
            start, size = end, 0
        size += call.size
    yield calls[start:]
