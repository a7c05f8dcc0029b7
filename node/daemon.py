"""The loop that worker and scorer share: look at the chain after every block, act, survive outages, stop cleanly."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from abci_app.errors import (
    AlreadyAttested,
    AlreadyCommitted,
    AlreadyMember,
    AlreadyRevealed,
    AlreadyScored,
    NotExpected,
    PhaseOver,
    WrongNonce,
    WrongPhase,
    WrongRound,
)
from da_layer.errors import DaError
from node.client import Client
from node.errors import NodeError, TransactionFailed, TransactionPending
from node.participant import BlobMissing
from node.view import JobView, look

T = TypeVar("T")

TOO_LATE: Final = frozenset(
    error.code
    for error in (
        AlreadyAttested,
        AlreadyCommitted,
        AlreadyMember,
        AlreadyRevealed,
        AlreadyScored,
        NotExpected,
        PhaseOver,
        WrongNonce,
        WrongPhase,
        WrongRound,
    )
)
"""Refusals that mean: the chain is further than the view was. The next look shows what to do."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
BLOCK_WAIT_S: Final = 15.0


class Actor(Protocol):
    """What to do at each look."""

    async def act(self, view: JobView) -> bool:
        """Do what the view asks for; True once there is nothing left to do for good."""

    def wakers(self) -> Sequence[asyncio.Task[Any]]:
        """Work under way whose end should bring the next look, besides a new block."""


async def follow(client: Client, job_id: int, actor: Actor, stop: asyncio.Event, log: FilteringBoundLogger) -> None:
    """Let `actor` act after every block until it is done or `stop` is set.

    Trouble with nodes is logged once until it changes, and tried again with growing pauses.
    Raises: DaemonError from the actor.
    """
    pause_s, told = FIRST_PAUSE_S, ""
    while not stop.is_set():
        try:
            view = await look(client, job_id)
            if await actor.act(view):
                return
        except TransactionFailed as error:
            if error.code not in TOO_LATE:
                told = _tell_once(log, told, "transaction refused", error)
        except (BlobMissing, DaError, TransactionPending) as error:
            told = _tell_once(log, told, "not possible just now", error)
        except NodeError as error:
            told = _tell_once(log, told, "waiting for the node", error)
            await _sleep(stop, pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            continue
        else:
            told = ""
        pause_s = FIRST_PAUSE_S
        await _next_look(client, view.height, actor, stop)


async def log_until_ready(
    prepare: Callable[[], Awaitable[T]], stop: asyncio.Event, log: FilteringBoundLogger
) -> T | None:
    """What `prepare` returns once the node answers; None when `stop` is set first."""
    pause_s, told = FIRST_PAUSE_S, ""
    while not stop.is_set():
        try:
            return await prepare()
        except NodeError as error:
            told = _tell_once(log, told, "waiting for the node", error)
            await _sleep(stop, pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return None


def _tell_once(log: FilteringBoundLogger, told: str, event: str, error: Exception) -> str:
    text = f"{event}: {error}"
    if text != told:
        log.warning(event, reason=str(error))
    return text


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _next_look(client: Client, height: int, actor: Actor, stop: asyncio.Event) -> None:
    """Return at the next block, when the actor's own work ends, when asked to stop, or after a while."""
    block = asyncio.create_task(_next_block(client, height))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({block, stopping, *actor.wakers()}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        block.cancel()
        stopping.cancel()
        await asyncio.gather(block, stopping, return_exceptions=True)


async def _next_block(client: Client, height: int) -> None:
    with contextlib.suppress(TimeoutError):
        await client.wait_for_height(height + 1, timeout_s=BLOCK_WAIT_S)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set, for a clean end; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
