"""CometBFT's RPC as a load sees it, with blocks on time and whatever should go wrong."""

import asyncio
import base64
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

BLOCK_S = 0.05


@dataclass(slots=True)
class FakeEngine:
    """One node. Transactions that nothing is said of are in the next block, with success."""

    refused: Collection[bytes] = ()
    """Not taken: the mempool is full."""
    lost: Collection[bytes] = ()
    """Taken, and in no block."""
    failed: Collection[bytes] = ()
    """In a block, with a result code."""
    makes_blocks: bool = True
    status: int = 200
    """Of the answers to transactions."""
    takes_subscriptions: bool = True
    url: str = ""
    blocks: list[list[bytes]] = field(default_factory=list)
    """The first has height 1."""
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    _waiting: list[bytes] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        """POST /: a batch of transactions."""
        if self.status != 200:
            return web.Response(status=self.status, text="overloaded")
        calls = await request.json()
        answers = [self._take(base64.b64decode(call["params"]["tx"])) for call in calls]
        return web.json_response(answers if len(answers) > 1 else answers[0])

    def _take(self, tx: bytes) -> dict[str, Any]:
        if tx in self.refused:
            return {"jsonrpc": "2.0", "id": 0, "error": {"code": -1, "message": "Internal error", "data": "full"}}
        if tx not in self.lost:
            self._waiting.append(tx)
        return {"jsonrpc": "2.0", "id": 0, "result": {"code": 0}}

    async def block(self, request: web.Request) -> web.Response:
        txs = self.blocks[int(request.query["height"]) - 1]
        texts = [base64.b64encode(tx).decode() for tx in txs]
        return web.json_response({"result": {"block": {"header": {}, "data": {"txs": texts}}}})

    async def results(self, request: web.Request) -> web.Response:
        txs = self.blocks[int(request.query["height"]) - 1]
        found = [{"code": 7, "log": "no"} if tx in self.failed else {"code": 0} for tx in txs]
        return web.json_response({"result": {"height": request.query["height"], "txs_results": found or None}})

    async def follow(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive_json()
        if not self.takes_subscriptions:
            await socket.send_json({"id": 1, "error": {"code": -32603, "data": "max subscriptions reached"}})
            return socket
        await socket.send_json({"id": 1, "result": {}})
        self.sockets.append(socket)
        async for _ in socket:
            pass
        return socket

    async def make_blocks(self) -> None:
        while self.makes_blocks:
            await asyncio.sleep(BLOCK_S)
            block, self._waiting = self._waiting, []
            self.blocks.append(block)
            value = {"height": str(len(self.blocks)), "num_txs": str(len(block)), "events": []}
            for socket in self.sockets:
                await socket.send_json({"id": 1, "result": {"data": {"type": "event", "value": value}}})


@asynccontextmanager
async def running(engine: FakeEngine) -> AsyncIterator[FakeEngine]:
    """Serve it on a port of 127.0.0.1, as long as the body runs."""
    app = web.Application()
    app.router.add_post("/", engine.take)
    app.router.add_get("/block", engine.block)
    app.router.add_get("/block_results", engine.results)
    app.router.add_get("/websocket", engine.follow)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    engine.url = f"http://{host}:{port}"
    blocks = asyncio.create_task(engine.make_blocks())
    try:
        yield engine
    finally:
        blocks.cancel()
        await asyncio.gather(blocks, return_exceptions=True)
        await runner.cleanup()
