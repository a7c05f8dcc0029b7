"""A chain in memory, providers on real loopback sockets, and files to store."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from primitives.keys import PrivateKey
from storage.errors import SourceUnavailable
from storage.limits import ServiceLimits
from storage.provider import RetryPolicy
from storage.routes import storage_routes
from storage.service import StorageService
from storage.store import StorageStore
from storage.terms import DealTerms
from storage.tree import FileTree

CHAIN_ID = "outerstep-test"
OWNER = b"\x0e" * 20
OPERATORS = [bytes([number]) * 20 for number in (1, 2, 3)]
SERVICE_KEYS = {operator: PrivateKey.from_seed(f"service {operator.hex()}") for operator in OPERATORS}
PUBLIC_KEYS = {operator: key.public_key for operator, key in SERVICE_KEYS.items()}
QUICK = RetryPolicy(attempts=4, first_delay_s=0.01, max_delay_s=0.05)

Middleware = Callable[[web.Request, Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Any]]


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


class Chain:
    """A DealSource that tests write to."""

    def __init__(self) -> None:
        self.current_height = 1
        self.deals: dict[int, DealTerms] = {}
        self.hidden_from_lists: set[int] = set()
        self.unreachable = False

    def height(self) -> int:
        return self.current_height

    async def get(self, deal_id: int) -> DealTerms | None:
        self._check()
        return self.deals.get(deal_id)

    async def for_provider(self, operator: bytes) -> list[DealTerms]:
        self._check()
        return [d for d in self.deals.values() if operator in d.providers and d.id not in self.hidden_from_lists]

    def _check(self) -> None:
        if self.unreachable:
            raise SourceUnavailable("the test unplugged the chain")

    def add(self, content: bytes, **terms: Any) -> DealTerms:
        """A new deal about `content`; 'active' to height 100 with all three providers unless told otherwise."""
        tree = FileTree.build(content)
        given: dict[str, Any] = {
            "id": len(self.deals) + 1,
            "root": tree.root,
            "size": tree.size,
            "tier": "hot",
            "end_height": 100,
            "providers": tuple(OPERATORS),
            "owner": OWNER,
            "series": "",
            "status": "pending",
        }
        deal = DealTerms(**(given | terms))
        self.deals[deal.id] = deal
        return deal

    def change(self, deal: DealTerms, **terms: Any) -> DealTerms:
        self.deals[deal.id] = msgspec.structs.replace(self.deals[deal.id], **terms)
        return self.deals[deal.id]

    def delete(self, deal: DealTerms) -> None:
        self.current_height += 1
        self.change(deal, status="deleted", closed_height=self.current_height)


@dataclass
class Node:
    """One provider that is listening."""

    operator: bytes
    path: Path
    store: StorageStore
    service: StorageService
    runner: web.AppRunner
    url: str
    port: int
    received: list[tuple[str, str, int]] = field(default_factory=list)
    """(method, path, bytes of body) of each request."""

    def puts(self) -> list[str]:
        return [path for method, path, _ in self.received if method == "PUT"]

    async def stop(self) -> None:
        await self.runner.cleanup()
        self.store.close()


async def start_node(
    path: Path,
    chain: Chain,
    operator: bytes = OPERATORS[0],
    *,
    port: int = 0,
    budget_bytes: int | None = None,
    limits: ServiceLimits | None = None,
    middlewares: Sequence[Middleware] = (),
) -> Node:
    store = StorageStore(path, budget_bytes=budget_bytes)
    service = StorageService(store, chain, CHAIN_ID, operator, SERVICE_KEYS[operator], limits=limits)
    await service.start()
    received: list[tuple[str, str, int]] = []

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        received.append((request.method, request.path, request.content_length or 0))
        answer: web.StreamResponse = await handler(request)
        return answer

    app = web.Application(middlewares=[note, *(web.middleware(m) for m in middlewares)])
    app.add_routes(storage_routes(service))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    port = runner.addresses[0][1]
    return Node(operator, path, store, service, runner, f"http://127.0.0.1:{port}", port, received)


@contextlib.asynccontextmanager
async def running_nodes(tmp_path: Path, chain: Chain, **options: Any) -> AsyncIterator[list[Node]]:
    """Three providers; all are stopped at the end."""
    nodes = [
        await start_node(tmp_path / f"node{i}", chain, operator, **options) for i, operator in enumerate(OPERATORS)
    ]
    try:
        yield nodes
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))


def urls_of(nodes: Sequence[Node]) -> Mapping[bytes, str]:
    return {node.operator: node.url for node in nodes}


def names_in(path: Path, pattern: str = "*") -> list[str]:
    """Sorted names of the entries of a directory."""
    return sorted(entry.name for entry in path.glob(pattern))


def files_on_disk(path: Path) -> set[str]:
    """Names of the files (roots) that a store's directory holds."""
    return {entry.name for entry in (path / "files").iterdir()}
