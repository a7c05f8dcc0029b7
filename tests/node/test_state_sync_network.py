"""A node joins a real network by state sync, from peers of which two are hostile, through a crash of its own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from abci_app.failpoints import VARIABLE as FAIL_POINT
from abci_app.messages import Transfer
from node.client import Client
from node.config import ConsensusConfig, SnapshotsConfig, load_config, save_config
from node.errors import SetupError
from node.init import read_identity
from node.state_sync import arm
from primitives.keys import PrivateKey
from tests.abci_app.hostile_snapshots import ROLE_VARIABLE
from tests.node.real_node import ALICE, BOB, ROOT, make_homes, stop, transfer

pytestmark = pytest.mark.network

INTERVAL = 10
JOIN_S = 240
"""CometBFT gives up a peer that sends nothing only after two minutes."""
ACCOUNTS = [PrivateKey.from_seed(f"account {number}").address for number in range(240)]
PATCHED = (
    "from node import supervisor; plain = supervisor._python; supervisor._python = lambda module, *rest: "
    "plain('tests.abci_app.hostile_snapshots' if module == 'abci_app' else module, *rest); "
)


def start(home: Path, role: str, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    run = f"raise SystemExit(supervisor.main(['--home', {str(home)!r}]))"
    environment = {**os.environ, ROLE_VARIABLE: role, **variables}
    with (home / "logs/supervisor.log").open("ab") as log:
        command = [sys.executable, "-c", PATCHED + run]
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)


@contextlib.asynccontextmanager
async def running(home: Path, role: str, **variables: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """One node whose application has this role; stopped in order at the end, unless it was killed."""
    process = start(home, role, variables)
    try:
        yield process
    finally:
        if process.poll() is None:
            assert await stop(process) == 0


async def make_traffic(client: Client) -> None:
    """Many accounts, and blocks enough for two snapshots."""
    for first in range(0, len(ACCOUNTS), 40):
        await client.send([Transfer(to=to, amount=1) for to in ACCOUNTS[first : first + 40]], timeout_s=60)
    for _ in range(2 * INTERVAL):
        await transfer(client, 1)


async def app_hash_of_block(client: Client, height: int) -> bytes:
    await client.wait_for_height(height, timeout_s=60)
    block = await client.block(height)
    assert block is not None
    return block.app_hash


@pytest.mark.timeout(2 * JOIN_S)
async def test_a_node_joins_by_state_sync_among_hostile_peers_and_follows(tmp_path: Path) -> None:
    *old, home = make_homes(tmp_path, 4)
    for each in (*old, home):
        snapshots, consensus = (
            SnapshotsConfig(interval_blocks=INTERVAL),
            ConsensusConfig(empty_block_interval_ms=30_000),
        )
        save_config(each, replace(load_config(each), snapshots=snapshots, consensus=consensus))
    urls = [read_identity(each).url for each in old]
    async with contextlib.AsyncExitStack() as stack:
        for each, role in zip(old, ("honest", "wrong_chunks", "lying_offers"), strict=True):
            await stack.enter_async_context(running(each, role))
        client = await stack.enter_async_context(Client(urls[0], key=ALICE))
        await client.wait_for_height(1, timeout_s=60)
        await make_traffic(client)
        first_tx = (await client.block(3) or pytest.fail("no block 3")).tx_hashes
        height = await client.height()
        for url in urls:
            async with Client(url) as reader:
                await reader.wait_for_height(height, timeout_s=60)

        trust = await arm(home, urls)
        assert trust.agreed
        with pytest.raises(SetupError, match="a node runs in"):
            await arm(old[0], urls)

        joined = await stack.enter_async_context(running(home, "honest", **{FAIL_POINT: "restore.renamed"}))
        reader = await stack.enter_async_context(Client(read_identity(home).url))
        await reader.wait_for_height(height, timeout_s=JOIN_S)
        said = (home / "logs/app.log").read_text()
        assert "wrong chunk of a snapshot" in said
        assert "snapshot and its senders refused" in said
        assert said.count("abci_app ready") >= 2, "it died at the fail point and was started again"

        await transfer(client, 1000)
        last = await client.height()
        assert await app_hash_of_block(reader, last) == await app_hash_of_block(client, last)
        assert (await reader.account(BOB.address)).balance == 2 * INTERVAL + 1000
        assert await reader.block(1) is None, "it never had that block"
        for hash_ in first_tx:
            assert (await reader.tx(hash_)).status == "unknown"
        async with aiohttp.ClientSession() as session:
            for path in ("/health", "/storage/v1/deals", "/da/v1/blobs/" + "00" * 32):
                async with session.get(read_identity(home).url + path) as answer:
                    assert answer.status < 500, path

        joined.send_signal(signal.SIGKILL)
        await asyncio.to_thread(joined.wait)
        joined = await stack.enter_async_context(running(home, "honest"))
        await transfer(client, 7)
        await reader.wait_for_height(await client.height(), timeout_s=60)
        assert (await reader.account(BOB.address)).balance == 2 * INTERVAL + 1007
        assert not (home / "data/app.restored").exists()
