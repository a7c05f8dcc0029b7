"""One row server of four with a blob for it, and requests to it, for tests."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import msgspec

from da_layer.coding import EncodedBlob
from da_layer.limits import DaLimits
from da_layer.wire import ProvenRow, PutRequest, SignedPromise
from primitives.blobs import BlobPromise, ServiceMember
from primitives.encoding import encode
from tests.da_layer.network import (
    Network,
    Node,
    promise_for,
    proven_rows,
)

LIMITS = DaLimits(max_body_bytes=200_000, in_flight_bytes=250_000, max_answer_bytes=4_000, max_puts=2, patience_s=0.3)
DATA = random.Random(3).randbytes(5000)


@dataclass
class Bench:
    """One node of four, a blob, and the rows of that node."""

    net: Network
    node: Node
    member: ServiceMember
    blob: EncodedBlob
    indices: tuple[int, ...]

    @property
    def promise(self) -> BlobPromise:
        return promise_for(self.blob, self.net.members)

    @property
    def rows(self) -> list[ProvenRow]:
        return proven_rows(self.blob, self.indices)

    def url(self, commitment: str | None = None) -> str:
        return f"{self.node.url}/da/v1/blobs/{commitment or self.blob.commitment.hex()}"

    async def put(self, signed: SignedPromise, rows: list[ProvenRow], commitment: str | None = None) -> "Answer":
        body = encode(PutRequest(signed.promise, signed.public_key, signed.signature, tuple(rows)))
        return await self.put_bytes(body, commitment)

    async def put_bytes(self, body: bytes, commitment: str | None = None) -> "Answer":
        async with self.net.session.put(self.url(commitment), data=body) as response:
            return Answer(response.status, await response.read(), dict(response.headers))

    async def get(self, path: str = "", commitment: str | None = None) -> "Answer":
        async with self.net.session.get(self.url(commitment) + path) as response:
            return Answer(response.status, await response.read(), dict(response.headers))


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def error(self) -> tuple[int, str]:
        """Status and word of an error answer, which must be JSON with a detail."""
        fields: dict[str, Any] = msgspec.json.decode(self.body)
        assert fields["detail"]
        return self.status, fields["error"]


def bench_in(net: Network) -> Bench:
    blob = net.encode(DATA)
    member = net.members.members[0]
    return Bench(net, net.node_of(member), member, blob, net.assigned(blob)[0])


def nothing_stored(bench: Bench) -> bool:
    return bench.node.store.used_bytes == 0 and bench.node.store.status(bench.blob.commitment) is None


async def start_upload(bench: Bench, *, announced: int, sent: int = 0) -> asyncio.StreamWriter:
    """A client that announces more than it sends."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(bench.node.url.rsplit(":", 1)[1]))
    path = f"/da/v1/blobs/{bench.blob.commitment.hex()}"
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {announced}\r\n\r\n".encode() + bytes(sent))
    await writer.drain()
    return writer
