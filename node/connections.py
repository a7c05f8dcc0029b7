"""How many connections a port holds, and how long one may be open without a request: for every route alike.

Each connection that aiohttp serves stands behind a `LimitedConnection`. One too many is closed at once, before anything
is kept for it. A connection on which no request is being handled is closed after a while: the first whole header must
come within `header_s`, each further one within `idle_s` of the answer before it, however slowly its bytes trickle in.
While a request is handled its handler's own limits hold (on the body, the answer, the WebSocket).
"""

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from node.rpc_http import is_loopback

logger = logging.getLogger("outerstep.services")

HEADER_S: Final = 10.0
IDLE_S: Final = 60.0
BACKLOG: Final = 1024
"""Connections that the kernel keeps until they are looked at."""
OTHER_FILES: Final = 4096
"""Open files beside the connections: databases, files that are served, connections to others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """`connections` in all, of these `per_address` from one IPv4 address or one IPv6 /64."""

    connections: int
    per_address: int
    header_s: float = HEADER_S
    idle_s: float = IDLE_S
    exempt: Callable[[str], bool] = is_loopback
    """Addresses that only the total holds for."""


class Connections:
    """All connections of one port."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.num_open = 0
        self._by_source: Counter[str] = Counter()

    async def listen(self, server: web.Server, host: str, port: int) -> asyncio.Server:
        """Serve connections to this address under the limits.

        Raises: OSError when it cannot be bound.
        """
        _allow_files(self.limits.connections + OTHER_FILES)
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: LimitedConnection(self, server), host, port, backlog=BACKLOG)

    def admit(self, address: str) -> bool:
        """Whether one more connection is taken from here; it is counted if so."""
        source = _source(address)
        if self.num_open >= self.limits.connections:
            return False
        if self._by_source[source] >= self.limits.per_address and not self.limits.exempt(address):
            return False
        self.num_open += 1
        self._by_source[source] += 1
        return True

    def leave(self, address: str) -> None:
        """One that was admitted has ended."""
        source = _source(address)
        self.num_open -= 1
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]


class LimitedConnection(asyncio.Protocol):
    """One connection: counted while it is open, passed on to aiohttp's own protocol if it is admitted."""

    def __init__(self, connections: Connections, make_inner: Callable[[], asyncio.Protocol]) -> None:
        self._connections = connections
        self._make_inner = make_inner
        self._inner: asyncio.Protocol | None = None
        self._address = ""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if not self._connections.admit(self._address):
            transport.abort()
            return
        self._transport = transport
        self._inner = self._make_inner()
        self.expect_request(self._connections.limits.header_s)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.request_came()
        if self._inner is not None:
            self._connections.leave(self._address)
            self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def expect_request(self, seconds: float) -> None:
        """Close the connection unless a request is being handled by then."""
        self.request_came()
        if self._transport is not None and not self._transport.is_closing():
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def request_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def request_done(self) -> None:
        self.expect_request(self._connections.limits.idle_s)


@web.middleware
async def connection_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tells the connection when its request begins and ends; of no effect on ports without limits."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(protocol, LimitedConnection):
        return await handler(request)
    protocol.request_came()
    try:
        return await handler(request)
    finally:
        protocol.request_done()


def _source(address: str) -> str:
    """What is counted together: an IPv4 address, or the /64 that one IPv6 customer has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)


def _allow_files(wanted: int) -> None:
    """Raise this process' own limit on open files, so far as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if allowed < wanted:
        logger.warning("only %d open files are allowed, %d may be needed: see ulimit -n", allowed, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
