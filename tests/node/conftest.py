"""Homes of nodes, and a node's JSON-RPC over the engine double."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from abci_app.store import Store
from node import services as services_module
from node.chain import ChainState, Engine
from node.client import Client
from node.config import LimitsConfig, NodeConfig, ports_from
from node.context import NodeContext
from node.engine_proxy import EngineProxy
from node.follower import Follower
from node.genesis import install_genesis, make_genesis
from node.init import NodeIdentity, init_node
from node.metrics import Metrics
from node.rpc_http import RpcFace
from node.services import Services
from primitives.keys import PrivateKey
from tests.node.engine_double import EngineDouble

CHAIN_ID = "test-1"
ALICE = PrivateKey.from_seed("alice")
BOB = PrivateKey.from_seed("bob")
LIMITS = LimitsConfig(body_kib=64, batch=10, websockets=3)


@dataclass
class Made:
    """A node's home with its genesis."""

    home: Path
    identity: NodeIdentity
    genesis: bytes


@pytest.fixture
def made(tmp_path: Path) -> Made:
    home = tmp_path / "node"
    identity = init_node(home, moniker="test", network=ports_from(40000))
    accounts = {ALICE.address: 10**12, BOB.address: 10**12, identity.operator: 10**9}
    genesis = make_genesis([identity], accounts, chain_id=CHAIN_ID)
    install_genesis(home, genesis)
    return Made(home, identity, genesis)


@contextmanager
def open_engine(made: Made, folder: Path) -> Iterator[EngineDouble]:
    """An engine at height 1 of the chain, its state in `folder`."""
    app_state = json.dumps(json.loads(made.genesis)["app_state"]).encode()
    with Store(folder) as store:
        yield EngineDouble(store, app_state, CHAIN_ID)


@pytest.fixture
def engine(made: Made, tmp_path: Path) -> Iterator[EngineDouble]:
    with open_engine(made, tmp_path / "app") as engine:
        yield engine


@dataclass
class Served:
    """A node's JSON-RPC, listening."""

    url: str
    node: NodeContext
    engine: EngineDouble


@asynccontextmanager
async def serving(made: Made, engine: EngineDouble) -> AsyncIterator[Served]:
    """A node over this engine."""
    async with TestServer(engine.application()) as engine_server:
        link = Engine(str(engine_server.make_url("")).rstrip("/"))
        follower = Follower(link)
        node = NodeContext(
            chain_id=CHAIN_ID,
            config=NodeConfig(limits=LIMITS),
            identity=made.identity,
            engine=link,
            state=ChainState(link),
            follower=follower,
            usage=lambda: {"da": 1, "storage": 2},
        )
        application = web.Application(client_max_size=LIMITS.body_kib * 1024)
        metrics = Metrics(lambda: follower.height, node.usage, engine=link, da=dict, storage=dict)
        application.add_routes(RpcFace(node, metrics).routes())
        application.add_routes(EngineProxy(link, LIMITS).routes())
        following = asyncio.create_task(follower.run())
        async with TestServer(application) as server:
            await follower.wait_for_height(1, 10.0)
            yield Served(str(server.make_url("")).rstrip("/"), node, engine)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await link.close()


@pytest.fixture
async def served(made: Made, engine: EngineDouble) -> AsyncIterator[Served]:
    async with serving(made, engine) as node:
        yield node


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url, key=ALICE) as client:
        yield client


@pytest.fixture
async def services(made: Made, served: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """The services of the node, without their own port, over the same engine."""
    monkeypatch.setattr(services_module, "local_address", lambda _: served.node.engine.url.removeprefix("http://"))
    services = Services(made.home)
    work = [asyncio.create_task(services.follower.run()), asyncio.create_task(services.keep_house())]
    yield services
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await services.close()
