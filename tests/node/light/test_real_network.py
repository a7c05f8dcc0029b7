"""A real node, verified by us and by CometBFT's own light client, which has our /engine as its witness."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from node.client import Client
from node.config import load_config
from node.engine import find_engine
from node.engine_files import GENESIS_NAME
from node.init import read_identity
from node.light.client import LightClient
from node.light.source import NodeSource
from node.light.trust import trust_genesis
from node.rpc_client import RpcConnection
from primitives.keys import format_address
from tests.node.cli.test_command_line import outerstep
from tests.node.real_node import ALICE, make_homes, running, transfer
from tests.ports import free_ports

pytestmark = pytest.mark.network


@contextlib.asynccontextmanager
async def cometbft_light(folder: Path, home: Path, trusted: tuple[int, bytes]) -> AsyncIterator[str]:
    """CometBFT's light client as a proxy: asks the engine, and compares with our services. Gives its RPC's URL."""
    config, address = load_config(home), f"127.0.0.1:{free_ports(1)}"
    chain_id = json.loads((home / GENESIS_NAME).read_text())["chain_id"]
    height, hash_ = trusted
    arguments = [
        *("light", chain_id, "--home-dir", str(folder), "--laddr", f"tcp://{address}"),
        *("--primary", f"http://{config.network.engine_rpc}", "--witnesses", f"{read_identity(home).url}/engine"),
        *("--height", str(height), "--hash", hash_.hex(), "--trusting-period", "200s", "--verbose"),
    ]
    with (folder.parent / "light.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(str(find_engine()), *arguments, stdout=log, stderr=log)
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        await process.wait()


async def ask(url: str, method: str, **params: str) -> Any:
    """One call, again until the proxy listens."""
    connection = RpcConnection(url)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    async with connection.session.get(f"{url}/health"):
                        return await connection.call(method, params)
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def test_we_and_cometbfts_light_client_verify_the_same_headers(tmp_path: Path) -> None:
    (home,) = make_homes(tmp_path, 1)
    url, genesis = read_identity(home).url, (home / GENESIS_NAME).read_bytes()
    trust = trust_genesis(genesis)
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(3, timeout_s=60)
        await transfer(client, 1)
        height = await client.height()
        source = NodeSource(url)
        light = LightClient(trust.chain_id, [source], rules=trust.rules, trusted=[trust.trusted])
        first, last = await light.verify(1), await light.verify(height)
        async with cometbft_light(tmp_path / "light", home, (1, first.block_hash)) as proxy:
            answer = await ask(proxy, "commit", height=str(height))
        assert answer["signed_header"]["commit"]["block_id"]["hash"] == last.block_hash.hex().upper()
        assert answer["signed_header"]["header"]["app_hash"] == last.app_hash.hex().upper()
        compared = f"Matching header received by witness          height={height} witness=0"
        assert compared in (tmp_path / "light.log").read_text()
        await light.close()

        query = ("query", "--genesis", home, "--light-home", tmp_path / "kept", "--verify")
        account = ("account", format_address(ALICE.address), "--json", "--node", url)
        result = await asyncio.to_thread(outerstep, *query, *account)
        assert result.exit_code == 0, result.stderr
        verified = json.loads(result.stdout)["verified"]
        assert verified["signed_power"] == verified["total_power"] == last.total_power
