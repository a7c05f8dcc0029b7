"""HTTP and WebSocket faces of the JSON-RPC: POST /rpc, /ws, /health, /metrics."""

import asyncio
import ipaddress
import itertools
import json
import time
from typing import Any, Final

from aiohttp import WSMsgType, web

from da_layer.limits import ByteBudget, Lease
from node import errors
from node.context import NodeContext
from node.errors import RpcError
from node.follower import Event
from node.jsonform import from_json, to_json
from node.metrics import Metrics
from node.rate import RateLimiter
from node.rpc_server import Caller, RpcServer, by_name
from node.rpc_types import SubscribeParams, UnsubscribeParams

JSON_TYPE: Final = "application/json"
QUEUED_MESSAGES: Final = 256
"""Messages waiting for a slow client; one more and it is disconnected."""
MAX_SUBSCRIPTIONS: Final = 16
HEARTBEAT_S: Final = 30.0
BODY_S: Final = 20.0
"""How long the body of a POST may take to come."""
SMALL_BODY_BYTES: Final = 16 * 1024
"""What any body may hold; only what is above counts against BODIES_BYTES, so small calls always pass."""
BODIES_BYTES: Final = 16 * 1024 * 1024
"""What the bodies of all POSTs coming in or being answered may hold together, or four of the largest bodies."""
PROXY_HEADERS: Final = (
    "Origin",
    "Forwarded",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
)
"""A call with one of these comes through a proxy or from a browser, whatever address it comes from."""


class RpcFace:
    """The routes of one node's JSON-RPC."""

    def __init__(self, node: NodeContext, metrics: Metrics) -> None:
        limits = node.config.limits
        self._node = node
        self._metrics = metrics
        self._server = RpcServer(node, metrics.count_call)
        self._limiter = RateLimiter(limits.calls_per_s, limits.calls_burst, time.monotonic)
        self._bodies = ByteBudget(max(BODIES_BYTES, 4 * limits.body_kib * 1024))
        self._num_sockets = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/rpc", self.post),
            web.get("/ws", self.socket),
            web.get("/health", self.health),
            web.get("/metrics", self.metrics),
        ]

    async def post(self, request: web.Request) -> web.StreamResponse:
        """One call or a batch."""
        with self._bodies.lease() as lease:
            try:
                async with asyncio.timeout(BODY_S):
                    body = await self._read_body(request, lease)
            except TimeoutError:
                return _refusal(408, errors.INVALID_REQUEST, f"the body did not come within {BODY_S:g} s")
            if isinstance(body, web.Response):
                return body
            answer = await self._server.handle(body, self._caller(request))
        if answer is None:
            return web.Response(status=204)
        return web.Response(body=answer, content_type=JSON_TYPE)

    async def _read_body(self, request: web.Request, lease: Lease) -> bytes | web.Response:
        """The body, or the refusal as soon as it is too large or all bodies together are."""
        limit, body = self._node.config.limits.body_kib, bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > limit * 1024:
                return _refusal(413, errors.INVALID_REQUEST, f"the body is larger than {limit} KiB")
            if not lease.take(max(0, len(body) - SMALL_BODY_BYTES - lease.taken)):
                return _refusal(503, errors.RATE_LIMITED, "too many large bodies at once; try again later")
        return bytes(body)

    async def health(self, request: web.Request) -> web.StreamResponse:
        """200 while the node follows its chain, else 503 with the reason."""
        problem = self._node.follower.problem
        status = {"status": "ok" if problem is None else problem, "height": self._node.follower.height}
        return web.json_response(status, status=200 if problem is None else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=await self._metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def socket(self, request: web.Request) -> web.StreamResponse:
        """The same methods over a WebSocket, and subscriptions."""
        limits = self._node.config.limits
        if self._num_sockets >= limits.websockets:
            return _refusal(503, errors.RATE_LIMITED, "too many WebSocket connections; try again later")
        socket = web.WebSocketResponse(max_msg_size=limits.body_kib * 1024, heartbeat=HEARTBEAT_S)
        await socket.prepare(request)
        self._num_sockets += 1
        self._metrics.sockets.inc()
        connection = SocketConnection(socket, request.transport, self._node, self._metrics)
        try:
            await connection.serve(self._server, self._caller(request))
        finally:
            self._num_sockets -= 1
            self._metrics.sockets.dec()
        return socket

    def _caller(self, request: web.Request) -> Caller:
        address = request.remote or ""
        local = is_loopback(address)
        direct = not any(name in request.headers for name in PROXY_HEADERS)
        take = (lambda: True) if local and direct else (lambda: self._limiter.take(address))
        return Caller(from_loopback=local and direct, take_call=take, extra={})


class SocketConnection:
    """One WebSocket: answers in order, events in between, through one bounded queue."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        node: NodeContext,
        metrics: Metrics,
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._node = node
        self._metrics = metrics
        self._outgoing: asyncio.Queue[str] = asyncio.Queue(QUEUED_MESSAGES)
        self._too_slow = asyncio.Event()
        self._topics: dict[int, str] = {}
        self._numbers = itertools.count(1)

    async def serve(self, server: RpcServer, caller: Caller) -> None:
        """Until either side closes."""
        caller.extra = {"subscribe": self._subscribe, "unsubscribe": self._unsubscribe}
        self._node.follower.listeners.add(self._on_event)
        work = (self._read(server, caller), self._write(), self._wait_until_too_slow())
        tasks = [asyncio.create_task(part) for part in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._node.follower.listeners.discard(self._on_event)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    async def _wait_until_too_slow(self) -> None:
        await self._too_slow.wait()

    async def _close(self) -> None:
        """In order, or at once when the other side does not read."""
        if self._too_slow.is_set() and self._transport is not None:
            self._metrics.slow_sockets.inc()
            self._transport.abort()
        else:
            await self._socket.close()

    async def _read(self, server: RpcServer, caller: Caller) -> None:
        async for message in self._socket:
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                body = message.data.encode() if isinstance(message.data, str) else message.data
                answer = await server.handle(body, caller)
                if answer is not None:
                    await self._outgoing.put(answer.decode())
                    # Answers may be long: the next call waits until the client has taken this one.
                    await self._outgoing.join()

    async def _write(self) -> None:
        while True:
            await self._socket.send_str(await self._outgoing.get())
            self._outgoing.task_done()

    def _on_event(self, topic: str, event: Event) -> None:
        for number, wanted in self._topics.items():
            if wanted == topic:
                params = {"subscription": number, "event": to_json(event)}
                note = json.dumps({"jsonrpc": "2.0", "method": "subscription", "params": params})
                try:
                    self._outgoing.put_nowait(note)
                except asyncio.QueueFull:
                    self._too_slow.set()

    async def _subscribe(self, params: Any) -> int:
        wanted: SubscribeParams = from_json(by_name(params, SubscribeParams), SubscribeParams)
        if len(self._topics) >= MAX_SUBSCRIPTIONS:
            raise RpcError(errors.INVALID_REQUEST, f"at most {MAX_SUBSCRIPTIONS} subscriptions per connection")
        number = next(self._numbers)
        self._topics[number] = wanted.topic
        return number

    async def _unsubscribe(self, params: Any) -> bool:
        wanted: UnsubscribeParams = from_json(by_name(params, UnsubscribeParams), UnsubscribeParams)
        return self._topics.pop(wanted.subscription, None) is not None


def is_loopback(address: str) -> bool:
    """Whether a remote address is this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _refusal(status: int, code: int, message: str) -> web.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return web.json_response(body, status=status)
