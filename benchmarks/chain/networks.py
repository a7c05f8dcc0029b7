"""Networks to measure: the application and the engine of each node, started as a node starts them, and nothing else.

The homes of ours and of the Go kvstore are the same to the byte, configuration and genesis included, but for the line
of config.toml that names the application.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, Literal

import aiohttp
import psutil

from benchmarks.chain.errors import BenchError
from localnet.load.usage import Measured
from localnet.ports import PORTS_PER_NODE, claim
from node.children import Child, ChildSpec, last_lines
from node.config import load_config, ports_from
from node.engine import find_engine
from node.engine_files import ENGINE_FOLDER, SOCKET_NAME, engine_config
from node.genesis import install_genesis, make_genesis
from node.init import connect_peers, init_node
from node.supervisor import chain_specs
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import PrivateKey

Application = Literal["outerstep", "kvstore"]
CHAIN_ID: Final = "bench-chain-where-payments-have-two-hundred-bytes"
"""So long that payments have 200 bytes; the same for every network, so that what was signed once serves them all."""
ACCOUNTS: Final = [PrivateKey.from_seed(f"bench/{number}") for number in range(2000)]
FLOODERS: Final = [PrivateKey.from_seed(f"bench/flooder/{number}") for number in range(1000)]
"""Accounts whose names the flood uses: their nonces stay at 0, and those up to 63 may wait."""
BALANCE: Final = 1_000_000 * MICRO_PER_TOKEN
START_S: Final = 60.0
STOP_S: Final = 3.0
FIRST_HEIGHT: Final = 2


@dataclass(frozen=True, slots=True)
class Running:
    """A network that makes blocks."""

    urls: tuple[str, ...]
    """CometBFT's RPC of each node."""
    measured: Measured


@asynccontextmanager
async def network(
    application: Application, nodes: int, settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Running]:
    """A fresh network of `nodes` validators; nothing of it is left afterwards. `settings`: lines of config.toml that
    differ from what nodes are given.

    Raises: BenchError, PortError, SetupError.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        base_port = stack.enter_context(claim(None, nodes))
        homes = _make_homes(folder, nodes, base_port)
        for home in homes:
            text = engine_config(home, load_config(home))
            if application == "kvstore":
                text = with_application(text, "kvstore")
            (home / ENGINE_FOLDER / "config/config.toml").write_text(with_settings(text, settings))
        specs = [_specs(home, application) for home in homes]
        started: list[list[Child]] = []
        stack.push_async_callback(_stop, started)
        for node_specs in specs:
            started.append([])
            for spec in node_specs:
                child = Child(spec)
                started[-1].append(child)
                await child.start()
        urls = tuple(f"http://{load_config(home).network.engine_rpc}" for home in homes)
        try:
            async with asyncio.timeout(START_S):
                await _until_ready(started)
                await _until_blocks(urls)
        except TimeoutError as error:
            raise BenchError(f"{application} with {nodes} nodes made no block within {START_S:.0f} s") from error
        yield Running(urls, _measured(homes))


def _make_homes(folder: Path, nodes: int, base_port: int) -> list[Path]:
    homes = [folder / f"node{index}" for index in range(nodes)]
    identities = [
        init_node(home, moniker=home.name, network=ports_from(base_port + PORTS_PER_NODE * index))
        for index, home in enumerate(homes)
    ]
    balances = {key.address: BALANCE for key in (*ACCOUNTS, *FLOODERS)} | {
        each.operator: BALANCE for each in identities
    }
    genesis = make_genesis(identities, balances, chain_id=CHAIN_ID)
    for home in homes:
        install_genesis(home, genesis)
        connect_peers(home, identities)
    return homes


def with_application(config: str, name: str) -> str:
    """The same config.toml for another application."""
    line = f'proxy_app = "unix://{SOCKET_NAME}"\n'
    assert config.count(line) == 1, "config.toml names the application in another way than expected"
    return config.replace(line, f'proxy_app = "{name}"\n')


def with_settings(config: str, settings: Mapping[str, str]) -> str:
    """The same config.toml with other values; each name stands there once.

    Raises: BenchError.
    """
    for name, value in settings.items():
        config, count = re.subn(rf"^{re.escape(name)} = .*$", f"{name} = {value}", config, flags=re.MULTILINE)
        if count != 1:
            raise BenchError(f"config.toml has {count} lines for {name}, not one")
    return config


def _specs(home: Path, application: Application) -> Sequence[ChildSpec]:
    app, engine = chain_specs(home, load_config(home), find_engine())
    return [engine] if application == "kvstore" else [app, engine]


async def _until_ready(started: Sequence[Sequence[Child]]) -> None:
    for child in (child for children in started for child in children):
        if not await child.until_healthy():
            words = "\n".join(last_lines(child.spec.log, 8))
            raise BenchError(f"{child.spec.name} in {child.spec.folder} ended with code {child.exit_code}\n{words}")


async def _until_blocks(urls: Sequence[str]) -> None:
    async with aiohttp.ClientSession() as session:
        for url in urls:
            while await _height(session, url) < FIRST_HEIGHT:
                await asyncio.sleep(0.05)


async def _height(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(f"{url}/status") as response:
        answer = await response.json()
    return int(answer["result"]["sync_info"]["latest_block_height"])


def _measured(homes: Sequence[Path]) -> Measured:
    def processes(name: str) -> list[psutil.Process]:
        files = [home / f"run/{name}.pid" for home in homes]
        return [psutil.Process(int(file.read_text())) for file in files if file.exists()]

    return Measured(apps=processes("app"), engines=processes("engine"))


async def _stop(started: Sequence[Sequence[Child]]) -> None:
    """The engines first: without an application they may hang."""
    for children in started:
        await asyncio.gather(*(child.stop(STOP_S) for child in children[-1:]))
    await asyncio.gather(*(child.stop(STOP_S) for children in started for child in children))
