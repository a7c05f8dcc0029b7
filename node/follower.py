"""Follows the chain block by block: the height everybody waits for, recent transactions by hash, events.

CometBFT's WebSocket only wakes it; what it knows it reads block by block, so nothing is missed by a lost connection.
"""

import asyncio
import base64
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from abci_app.transactions import tx_hash
from node.chain import Engine, from_base64
from node.errors import NodeUnreachable, RpcError
from node.rpc_types import BlockEvent, RoundEvent, SettlementEvent, TxStatus
from primitives.encoding import EncodingError, decode

logger = logging.getLogger("outerstep.follower")

POLL_S: Final = 0.2
"""How often the height is asked for while the WebSocket is down."""
POLL_WITH_EVENTS_S: Final = 2.0
KEPT_BLOCKS: Final = 250
"""Blocks that are read at the start, so that recent transactions are known by hash after a restart."""
KEPT_TXS: Final = 20_000
STALE_S: Final = 10.0
Event = BlockEvent | RoundEvent | SettlementEvent
Listener = Callable[[str, Event], None]
"""Called with topic (blocks, rounds, settlements) and event; must not block."""


class Follower:
    """One per process of services; `run` is its task."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self._transactions: OrderedDict[bytes, TxStatus] = OrderedDict()
        self._listening = False
        self._heard_at = -STALE_S
        self.height = 0
        """Last committed height; 0 until the first look at the chain is complete."""
        self.listeners: set[Listener] = set()

    @property
    def problem(self) -> str | None:
        """Why this node does not follow the chain, or None while it does."""
        if not self.height:
            return "the chain has not been read yet"
        silent_s = time.monotonic() - self._heard_at
        return f"the engine has not answered for {silent_s:.0f} s" if silent_s > STALE_S else None

    def transaction(self, hash_: bytes) -> TxStatus | None:
        """A transaction of one of the last blocks."""
        return self._transactions.get(hash_)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return once `condition` holds after some block, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(condition)

    async def wait_for_height(self, height: int, timeout_s: float) -> None:
        """As `wait_for`."""
        await self.wait_for(lambda: self.height >= height, timeout_s)

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._follow())

    async def _follow(self) -> None:
        seen = 0
        while True:
            try:
                latest = await self._engine.committed_height()
                self._heard_at = time.monotonic()
                first = max(seen + 1, latest - KEPT_BLOCKS + 1)
                for height in range(first, latest + 1):
                    events = await (self._take(height) if self.height else self._take_old(height))
                    seen = height
                    if self.height or height == latest:
                        await self._publish(height, events)
            except NodeUnreachable:
                pass
            except RpcError as error:
                logger.warning("block %d cannot be read yet: %s", seen + 1, error)
            await self._pause()

    async def _pause(self) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), POLL_WITH_EVENTS_S if self._listening else POLL_S)

    async def _publish(self, height: int, events: list[tuple[str, Event]]) -> None:
        async with self._changed:
            self.height = height
            self._changed.notify_all()
        for topic, event in events:
            for listener in tuple(self.listeners):
                listener(topic, event)

    async def _take(self, height: int) -> list[tuple[str, Event]]:
        """Read one block: remember its transactions, return its events."""
        answer = await self._engine.block(height)
        if answer is None:
            return []
        results = await self._engine.block_results(height)
        header, hash_ = answer["block"]["header"], bytes.fromhex(answer["block_id"]["hash"])
        txs = [from_base64(text) for text in answer["block"]["data"].get("txs") or ()]
        outcomes = results.get("txs_results") or []
        for index, (tx, outcome) in enumerate(zip(txs, outcomes, strict=True)):
            self._remember(tx_status(tx_hash(tx), height, index, outcome))
        block = BlockEvent(height=height, hash=hash_, time=header["time"], num_txs=len(txs))
        raised = [event for outcome in outcomes for event in outcome.get("events") or ()]
        raised += results.get("finalize_block_events") or []
        return [("blocks", block), *_events(raised, height)]

    async def _take_old(self, height: int) -> list[tuple[str, Event]]:
        """As `_take`, for blocks before this process: what the engine no longer holds is passed over."""
        try:
            return await self._take(height)
        except RpcError as error:
            logger.info("block %d is not held any more: %s", height, error)
            return []

    def _remember(self, status: TxStatus) -> None:
        known = self._transactions.get(status.hash)
        if known is None or known.code:
            self._transactions[status.hash] = status
        while len(self._transactions) > KEPT_TXS:
            self._transactions.popitem(last=False)

    async def _listen(self) -> None:
        request = {"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": {"query": "tm.event='NewBlockHeader'"}}
        while True:
            try:
                async with self._engine.session.ws_connect(f"{self._engine.url}/websocket", heartbeat=20.0) as socket:
                    await socket.send_json(request)
                    async for message in socket:
                        self._listening = message.type is aiohttp.WSMsgType.TEXT
                        self._wake.set()
            except (aiohttp.ClientError, OSError):
                pass
            self._listening = False
            await asyncio.sleep(POLL_S)


def tx_status(hash_: bytes, height: int, index: int, outcome: dict[str, Any]) -> TxStatus:
    """What CometBFT keeps of an executed transaction, in our form."""
    data = base64.b64decode(outcome.get("data") or "")
    try:
        ids = tuple(decode(data, list[int])) if data else ()
    except EncodingError:
        ids = ()
    return TxStatus(
        hash=hash_,
        status="committed",
        height=height,
        index=index,
        code=int(outcome.get("code") or 0),
        log=str(outcome.get("log") or ""),
        ids=ids,
        work_used=int(outcome.get("gas_used") or 0),
    )


def _events(raised: list[dict[str, Any]], height: int) -> list[tuple[str, Event]]:
    found: list[tuple[str, Event]] = []
    for event in raised:
        attributes = {item["key"]: item["value"] for item in event.get("attributes") or ()}
        if event["type"] == "round":
            found.append(("rounds", _round_event(attributes, height)))
        elif event["type"] == "settlement":
            ids = {name: int(attributes[name]) for name in ("job_id", "round_index")}
            found.append(("settlements", SettlementEvent(height=height, **ids)))
    return found


def _round_event(attributes: dict[str, str], height: int) -> RoundEvent:
    return RoundEvent(
        job_id=int(attributes["job_id"]),
        round_index=int(attributes["round_index"]),
        phase=attributes["phase"],
        status=attributes["status"],
        height=height,
    )
