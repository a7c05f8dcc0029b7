"""The measured part: writes prepared requests at their time and notes when blocks are committed; nothing else.

With a fixed rate a request is due by the clock, and counts as submitted when it was due, so a generator that is kept
waiting hides nothing. Without one, requests go out as fast as `in_flight` allows.
"""

import asyncio
import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from localnet.load.commits import Commit, listening
from localnet.load.errors import LoadError
from localnet.load.offer import Batch
from localnet.load.pipe import Pipe
from localnet.load.usage import CpuSeconds, Measured

TICK_S: Final = 0.005
"""How often a fixed rate is looked after."""
STALL_S: Final = 30.0
"""So long without a block that begins or ends the measurement, and the load is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much is sent, and how long."""

    rate: float | None
    """Transactions a second; None: as many as `in_flight` allows."""
    in_flight: int
    """Most transactions that are submitted and not yet in a block; below the size of CometBFT's mempool."""
    seconds: float
    """Length of the measured window; it begins and ends with a block."""
    warm_up_s: float
    """Time under the same load before it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An end of the measured window: a block that became known, and where the processor times stood then."""

    commit: Commit
    cpu: CpuSeconds


@dataclass(slots=True)
class Record:
    """What happened."""

    started_s: float
    submitted_at: list[float] = field(default_factory=list)
    """By batch."""
    commits: list[Commit] = field(default_factory=list)
    begin: Mark | None = None
    end: Mark | None = None
    stopped_s: float = 0.0
    """When the last batch went out."""
    ran_out: bool = False
    """All that was prepared had been sent before the time was over."""


class Drive:
    """One run of a load. `until_measured` makes it; what is on the way then may be waited for with `next_commit`."""

    def __init__(
        self, batches: Sequence[Batch], pace: Pace, measured: Measured, on_progress: Callable[[float], None]
    ) -> None:
        """`on_progress` is told the share of the time that is over."""
        self._batches = batches
        self._pace = pace
        self._measured = measured
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._pipes: list[Pipe] = []
        self._sent_txs = 0
        self._committed_txs = 0
        self._offering = False
        self._finished = self._loop.create_future()
        self._commit_came = asyncio.Event()
        self.record = Record(started_s=0.0)

    async def open(self, stack: AsyncExitStack, urls: Sequence[str], num_lanes: int) -> None:
        """Connect, for as long as `stack` lasts.

        Raises: LoadError.
        """
        await stack.enter_async_context(listening(urls[0], self._on_commit, self._fail))
        for lane in range(num_lanes):
            pipe = await Pipe.connect(urls[lane % len(urls)], self._pump, self._fail)
            self._pipes.append(pipe)
            stack.callback(pipe.close)

    async def until_measured(self) -> Record:
        """Offer the load until the measured window is over.

        Raises: LoadError, also when there are no blocks to measure by.
        """
        gc.collect()
        gc.disable()
        try:
            self.record.started_s = self._loop.time()
            self._offering = True
            self._tick()
            async with asyncio.timeout(self._pace.warm_up_s + self._pace.seconds + STALL_S):
                await self._finished
        except TimeoutError as error:
            raise LoadError(f"no block for {STALL_S:.0f} s under this load; the nodes' logs may say why") from error
        finally:
            gc.enable()
            self._offering = False
        return self.record

    @property
    def refusals(self) -> Counter[str]:
        """Why CometBFT has not taken transactions, with how many."""
        return sum((pipe.refusals for pipe in self._pipes), Counter())

    async def next_commit(self, timeout_s: float) -> None:
        """Wait for the next block, or for `timeout_s`."""
        self._commit_came.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._commit_came.wait()

    # --- called by the event loop -------------------------------------------------------------------------------
    def _tick(self) -> None:
        if not self._offering:
            return
        self._pump()
        total_s = self._pace.warm_up_s + self._pace.seconds
        self._on_progress(min(1.0, (self._loop.time() - self.record.started_s) / total_s))
        self._loop.call_later(TICK_S, self._tick)

    def _pump(self) -> None:
        """Send what is due and has room."""
        now = self._loop.time()
        sent = self.record.submitted_at
        while self._offering:
            if len(sent) == len(self._batches):
                self._stop(now, ran_out=True)
                return
            batch = self._batches[len(sent)]
            due_s = now if self._pace.rate is None else self.record.started_s + self._sent_txs / self._pace.rate
            in_flight = self._sent_txs - self._committed_txs
            full = in_flight + len(batch.texts) > self._pace.in_flight
            if due_s > now or full or not self._pipes[batch.lane].has_room:
                return
            self._pipes[batch.lane].send(batch.request)
            sent.append(due_s)
            self._sent_txs += len(batch.texts)

    def _on_commit(self, commit: Commit) -> None:
        record, pace = self.record, self._pace
        record.commits.append(commit)
        self._committed_txs += commit.num_txs
        self._commit_came.set()
        if self._offering or record.ran_out:
            if record.begin is None and commit.at_s >= record.started_s + pace.warm_up_s:
                record.begin = Mark(commit, self._measured.cpu())
            elif record.begin is not None and record.end is None and self._is_over(commit.at_s):
                record.end = Mark(commit, self._measured.cpu())
                self._stop(commit.at_s, ran_out=record.ran_out)
                if not self._finished.done():
                    self._finished.set_result(None)
        self._pump()

    def _is_over(self, now: float) -> bool:
        assert self.record.begin is not None
        return self.record.ran_out or now >= self.record.begin.commit.at_s + self._pace.seconds

    def _stop(self, now: float, *, ran_out: bool) -> None:
        if self._offering:
            self._offering = False
            self.record.stopped_s = now
            self.record.ran_out = ran_out

    def _fail(self, reason: str) -> None:
        self._offering = False
        if not self._finished.done():
            self._finished.set_exception(LoadError(reason))
