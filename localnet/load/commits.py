"""When blocks are committed, as a client sees it: the moment at which CometBFT tells a subscriber of each."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from localnet.load.errors import LoadError

QUERY: Final = "tm.event='NewBlockEvents'"
"""The smallest event that says how many transactions a block has."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One block became known."""

    height: int
    at_s: float
    """By the event loop's clock."""
    num_txs: int


class _Value(msgspec.Struct):
    height: str
    num_txs: str


class _Data(msgspec.Struct):
    value: _Value


class _Result(msgspec.Struct):
    data: _Data | None = None


class _Told(msgspec.Struct):
    result: _Result | None = None
    error: dict[str, Any] | None = None


@asynccontextmanager
async def listening(
    url: str, on_commit: Callable[[Commit], None], on_failure: Callable[[str], None]
) -> AsyncIterator[None]:
    """Call `on_commit` for every block from now on, as long as the body runs.

    Raises: LoadError when CometBFT takes no subscription.
    """
    try:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/websocket", heartbeat=20.0) as socket:
            await socket.send_json({"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": {"query": QUERY}})
            _told(await socket.receive())
            listener = asyncio.create_task(_listen(socket, on_commit, on_failure))
            try:
                yield
            finally:
                listener.cancel()
    except (aiohttp.ClientError, OSError) as error:
        raise LoadError(f"cannot follow the blocks of {url}: {error}") from error


async def _listen(
    socket: aiohttp.ClientWebSocketResponse, on_commit: Callable[[Commit], None], on_failure: Callable[[str], None]
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        message = await socket.receive()
        at_s = loop.time()
        try:
            told = _told(message)
        except LoadError as error:
            on_failure(str(error))
            return
        if told.result is not None and told.result.data is not None:
            value = told.result.data.value
            on_commit(Commit(int(value.height), at_s, int(value.num_txs)))


def _told(message: aiohttp.WSMessage) -> _Told:
    """Raises: LoadError."""
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise LoadError("CometBFT ended the subscription to its blocks")
    try:
        told = msgspec.json.decode(message.data, type=_Told)
    except msgspec.MsgspecError as error:
        raise LoadError(f"CometBFT tells of blocks in an unexpected form: {error}") from error
    if told.error is not None:
        raise LoadError(f"CometBFT tells nothing of its blocks: {told.error.get('data') or told.error}")
    return told
