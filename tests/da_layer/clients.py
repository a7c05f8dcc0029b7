"""Short forms of the client calls, and faults seen from the client's side, for tests."""

import asyncio
import random

import msgspec
from aiohttp import web

from da_layer import disperse as disperse_module
from da_layer.client import disperse, retrieve
from da_layer.coding import EncodedBlob
from da_layer.wire import SignedPromise
from primitives.blobs import Certificate, ServiceSet
from tests.da_layer.network import (
    Fault,
    Handler,
    Network,
    promise_for,
    sign,
)

DATA = random.Random(7).randbytes(50_001)
QUICK_HEDGE_S = 0.05


async def spread(net: Network, blob: EncodedBlob, *, timeout_s: float = 10) -> Certificate:
    signed = sign(promise_for(blob, net.members))
    return await disperse(
        net.session, blob, signed.promise, signed.signature, signed.public_key, net.members, timeout_s=timeout_s
    )


async def read(net: Network, blob: EncodedBlob, *, timeout_s: float = 10) -> bytes:
    return await retrieve(net.session, blob.header, net.members, timeout_s=timeout_s, hedge_s=QUICK_HEDGE_S)


async def all_attested(net: Network, blob: EncodedBlob) -> None:
    """Wait for the members that get their rows in the background."""
    while stragglers := list(disperse_module._stragglers):
        await asyncio.gather(*stragglers)
    assert [net.node_of(m).store.status(blob.commitment) is not None for m in net.members.members] == [True] * 4


async def disperse_signed(net: Network, blob: EncodedBlob, signed: SignedPromise) -> Certificate:
    return await disperse(
        net.session, blob, signed.promise, signed.signature, signed.public_key, net.members, timeout_s=5
    )


def unreachable(members: ServiceSet, gone: str, *, url: str = "http://127.0.0.1:9") -> ServiceSet:
    """The same members, but one of them listens where nobody is."""
    changed = tuple(
        msgspec.structs.replace(member, url=url) if member.url == gone else member for member in members.members
    )
    return ServiceSet(members.version, changed)


def busy_once() -> Fault:
    asked: list[str] = []

    async def fault(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) == 1:
            return web.json_response({"error": "busy", "detail": "later"}, status=503)
        return await handler(request)

    return fault
