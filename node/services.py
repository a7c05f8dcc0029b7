"""The services of one node as a process: JSON-RPC, DA rows, storage, metrics, all on one port.

    python -m node.services --home DIR

Follows the node's own chain through CometBFT's RPC. While the chain restarts, calls that need it are answered
"not ready" and everything goes on by itself afterwards.
"""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import uvloop
from aiohttp import web

from da_layer.errors import StoreUnavailable
from da_layer.server import da_routes
from da_layer.store import RowStore
from node.chain import ChainState, Engine
from node.chain_sources import ChainDeals, ChainForBlobs
from node.checks import check_genesis_file
from node.config import NodeConfig, load_config, local_address, split_address
from node.connections import ConnectionLimits, Connections, connection_middleware
from node.context import NodeContext
from node.engine_proxy import EngineProxy
from node.errors import SetupError
from node.follower import Follower
from node.init import SERVICE_KEY, read_identity
from node.keys import load_key
from node.metrics import Metrics
from node.rpc_http import RpcFace
from storage.errors import SourceUnavailable, UnwritableStore
from storage.routes import storage_routes
from storage.service import StorageService
from storage.store import StorageStore

logger = logging.getLogger("outerstep.services")

MIB: Final = 1024 * 1024
RETRY_S: Final = 1.0
EXIT_SETUP: Final = 2


class Services:
    """Everything that one process of services holds. Raises SetupError when it cannot be set up."""

    def __init__(self, home: Path) -> None:
        self.config = load_config(home)
        chain_id, identity = check_genesis_file(home), read_identity(home)
        key = load_key(home / SERVICE_KEY)
        self.engine = Engine(f"http://{local_address(self.config.network.engine_rpc)}")
        self.follower = Follower(self.engine)
        state = ChainState(self.engine)
        self.rows, self.files = _open_stores(home, self.config)
        deals = ChainDeals(state, self.follower)
        self.storage = StorageService(self.files, deals, chain_id, identity.operator, key)
        self.node = NodeContext(
            chain_id=chain_id,
            config=self.config,
            identity=identity,
            engine=self.engine,
            state=state,
            follower=self.follower,
            usage=self.usage,
        )
        chain = ChainForBlobs(state, self.follower)
        self.da_routes = da_routes(self.rows, chain_id=chain_id, member_key=key, chain=chain)

    def usage(self) -> dict[str, int]:
        """Bytes on disk by use, and the budgets."""
        return {
            "da": self.rows.used_bytes,
            "da_budget": self.config.disk.da_budget_mib * MIB,
            "storage": self.files.used_bytes,
            "storage_budget": self.config.disk.storage_budget_mib * MIB,
        }

    def application(self) -> web.Application:
        """All routes. DA and storage read their large bodies piece by piece under limits of their own."""
        metrics = Metrics(
            lambda: self.follower.height,
            self.usage,
            engine=self.engine,
            da=self.rows.metrics,
            storage=self.storage.metrics,
        )
        size = self.config.limits.body_kib * 1024
        application = web.Application(client_max_size=size, middlewares=[connection_middleware])
        application.add_routes(RpcFace(self.node, metrics).routes())
        application.add_routes(EngineProxy(self.engine, self.config.limits).routes())
        application.add_routes(self.da_routes)
        application.add_routes(storage_routes(self.storage))
        return application

    def connection_limits(self) -> ConnectionLimits:
        """Limits on the connections to the one port of all services."""
        limits = self.config.limits
        return ConnectionLimits(connections=limits.connections, per_address=limits.connections_per_address)

    async def keep_house(self) -> None:
        """At each new height drop what is over: rows past their expiry, files whose deals ended."""
        done = 0
        while True:
            await self.follower.wait_for_height(done + 1, RETRY_S)
            height = self.follower.height
            if height <= done:
                continue
            try:
                await asyncio.to_thread(self.rows.prune, height)
                await self.storage.on_height(height)
            except (StoreUnavailable, SourceUnavailable) as error:
                logger.warning("height %d: %s; trying again", height, error)
                await asyncio.sleep(RETRY_S)
            else:
                done = height

    async def close(self) -> None:
        self.files.close()
        await self.engine.close()


async def serve(home: Path, connection_limits: ConnectionLimits | None = None) -> None:
    """Serve until SIGINT or SIGTERM, under the configuration's limits on connections or under these.

    Raises: SetupError when it cannot start.
    """
    services = Services(home)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with (
            _listening(services, connection_limits or services.connection_limits()),
            asyncio.TaskGroup() as tasks,
        ):
            work = [tasks.create_task(services.follower.run()), tasks.create_task(services.keep_house())]
            await stop.wait()
            for task in work:
                task.cancel()
    finally:
        await services.close()


@contextlib.asynccontextmanager
async def _listening(services: Services, limits: ConnectionLimits) -> AsyncIterator[None]:
    host, port = split_address(services.config.network.services, name="network.services")
    connections = Connections(limits)
    runner = web.AppRunner(services.application(), access_log=None, shutdown_timeout=3.0)
    await runner.setup()
    try:
        assert runner.server is not None
        server = await connections.listen(runner.server, host, port)
        logger.info("serving on %s:%d", host, port)
        try:
            yield
        finally:
            server.close()
    except OSError as error:
        raise SetupError(f"network.services: cannot listen on {host}:{port}: {error.strerror}") from error
    finally:
        await runner.cleanup()


def _open_stores(home: Path, config: NodeConfig) -> tuple[RowStore, StorageStore]:
    try:
        rows = RowStore(home / "data/da", budget_bytes=config.disk.da_budget_mib * MIB)
        files = StorageStore(home / "data/storage", budget_bytes=config.disk.storage_budget_mib * MIB)
    except (StoreUnavailable, UnwritableStore) as error:
        raise SetupError(str(error)) from error
    return rows, files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m node.services", description="JSON-RPC, DA rows and storage.")
    parser.add_argument("--home", type=Path, required=True, help="the node's folder")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        uvloop.run(serve(chosen.home.absolute()))
    except SetupError as error:
        logger.error("%s", error)
        return EXIT_SETUP
    return 0


if __name__ == "__main__":
    sys.exit(main())
