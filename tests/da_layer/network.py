"""Real row servers on loopback, with faults to choose, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from aiohttp import ClientSession, web

from da_layer.coding import EncodedBlob, encode_blob
from da_layer.limits import DaLimits
from da_layer.server import da_routes
from da_layer.store import RowStore
from da_layer.wire import ProvenRow, SignedPromise
from primitives.blobs import BlobPromise, ServiceMember, ServiceSet, assign_rows, row_counts
from primitives.encoding import encode
from primitives.keys import PrivateKey

CHAIN_ID = "da-test"
STORE = web.AppKey("store", RowStore)
PUBLISHER = PrivateKey.from_seed("publisher")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Fault = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]


@dataclass
class FakeChain:
    """A DaChain that says what the test tells it to."""

    sets: dict[int, ServiceSet] = field(default_factory=dict)
    at_height: int = 10
    refusal: str | None = None
    asked: int = 0

    async def may_publish(self, promise: BlobPromise) -> str | None:
        self.asked += 1
        return self.refusal

    async def service_set(self, version: int) -> ServiceSet | None:
        return self.sets.get(version)

    def height(self) -> int:
        return self.at_height


@dataclass
class Node:
    store: RowStore
    key: PrivateKey
    url: str = ""
    fault: Fault | None = None


@dataclass
class Network:
    chain: FakeChain
    nodes: list[Node]
    members: ServiceSet
    session: ClientSession

    def encode(self, data: bytes, *, k: int = 8, codec: str = "isal") -> EncodedBlob:
        return encode_blob(data, k=k, n=sum(row_counts(k, self.members.members)), codec=codec)

    def node_of(self, member: ServiceMember) -> Node:
        return next(node for node in self.nodes if node.key.public_key == member.service_key)

    def store_everywhere(self, blob: EncodedBlob, *, expiry_height: int = 100) -> SignedPromise:
        """Put each node's rows straight into its store."""
        signed = sign(promise_for(blob, self.members, expiry_height=expiry_height))
        for member, indices in zip(self.members.members, self.assigned(blob), strict=True):
            self.node_of(member).store.put(signed, proven_rows(blob, indices))
        return signed

    def assigned(self, blob: EncodedBlob) -> list[tuple[int, ...]]:
        return assign_rows(blob.commitment, blob.header.k, self.members.members)


@asynccontextmanager
async def network(
    path: Path, stakes: Sequence[int] = (1, 1, 1, 1), *, limits: DaLimits | None = None, budget_bytes: int = 1 << 30
) -> AsyncIterator[Network]:
    """One node for each stake, all members of service set 1, and a client session."""
    chain = FakeChain()
    nodes: list[Node] = []
    runners: list[web.AppRunner] = []
    try:
        for position in range(len(stakes)):
            store = RowStore(path / f"node{position}", budget_bytes=budget_bytes)
            node = Node(store, PrivateKey.from_seed(f"service {position}"))
            runners.append(await serve(node, chain, limits))
            nodes.append(node)
        members = [
            ServiceMember(PrivateKey.from_seed(f"operator {position}").address, stake, node.key.public_key, node.url)
            for position, (stake, node) in enumerate(zip(stakes, nodes, strict=True))
        ]
        chain.sets[1] = ServiceSet(1, tuple(sorted(members, key=lambda member: member.operator)))
        async with ClientSession() as session:
            yield Network(chain, nodes, chain.sets[1], session)
    finally:
        for runner in runners:
            await runner.cleanup()


async def serve(node: Node, chain: FakeChain, limits: DaLimits | None) -> web.AppRunner:
    """Listen on a free port of loopback, which goes into `node.url`."""

    @web.middleware
    async def with_fault(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await (node.fault(request, handler) if node.fault else handler(request))

    app = web.Application(middlewares=[with_fault])
    app[STORE] = node.store
    app.add_routes(da_routes(node.store, chain_id=CHAIN_ID, member_key=node.key, chain=chain, limits=limits))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    node.url = f"http://{host}:{port}"
    return runner


def promise_for(blob: EncodedBlob, members: ServiceSet, **changes: object) -> BlobPromise:
    promise = BlobPromise(
        chain_id=CHAIN_ID,
        header=blob.header,
        namespace="job/1/round/2",
        expiry_height=100,
        set_version=members.version,
        publisher=PUBLISHER.address,
    )
    return msgspec.structs.replace(promise, **changes)


def sign(promise: BlobPromise, key: PrivateKey = PUBLISHER) -> SignedPromise:
    return SignedPromise(promise, key.public_key, key.sign(promise.digest))


def proven_rows(blob: EncodedBlob, indices: Sequence[int]) -> list[ProvenRow]:
    return [ProvenRow(index, bytes(blob.rows[index]), blob.prove(index)) for index in indices]


async def hang(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A node that takes requests and never answers."""
    await asyncio.Event().wait()
    raise AssertionError("never reached")


async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    return web.json_response({"error": "no", "detail": "not today\x1b[31m"}, status=403)


def changing_rows(change: Callable[[ProvenRow], ProvenRow]) -> Fault:
    """A node that serves changed rows."""

    async def fault(request: web.Request, handler: Handler) -> web.StreamResponse:
        index_list = [int(text) for text in request.query.getall("index", [])]
        store = request.app[STORE]
        rows = store.read(bytes.fromhex(request.match_info["commitment"]), index_list)
        return web.Response(body=encode([change(row) for row in rows]))

    return fault


def wrong_bytes(row: ProvenRow) -> ProvenRow:
    return msgspec.structs.replace(row, data=bytes([row.data[0] ^ 1]) + row.data[1:])


def wrong_proof(row: ProvenRow) -> ProvenRow:
    return msgspec.structs.replace(row, proof=msgspec.structs.replace(row.proof, path=row.proof.path[::-1]))
