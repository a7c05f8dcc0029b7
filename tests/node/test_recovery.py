"""FAULTS C2: data of the engine or of the application lost or put back alone. What the node says, and the way out."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node.client import Client
from node.init import read_identity
from node.reset import SIGNING_STATE
from tests.node.real_node import ALICE, BOB, ROOT, make_homes, running, transfer, try_once

pytestmark = pytest.mark.network


def lose_engine_data(home: Path) -> None:
    """All but the signing state."""
    for path in (home / "cometbft/data").iterdir():
        if path.is_dir():
            shutil.rmtree(path)


def application_data(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (home / "data/app").iterdir() if path.suffix == ".ldb"}


async def app_hash_after(client: Client, height: int) -> bytes:
    await client.wait_for_height(height + 1, timeout_s=60)
    block = await client.block(height + 1)
    assert block is not None
    return block.app_hash


async def test_lost_engine_data_is_explained_and_the_node_starts_over_from_the_others_after_a_reset(
    tmp_path: Path,
) -> None:
    validator, other = make_homes(tmp_path, 2)
    async with running([validator]), Client(read_identity(validator).url, key=ALICE) as client:
        await client.wait_for_height(1, timeout_s=60)
        async with running([other]), Client(read_identity(other).url) as reader:
            await transfer(client, 5)
            height = await client.height()
            await reader.wait_for_height(height, timeout_s=60)
        lose_engine_data(other)
        before = application_data(other)
        code, said = await try_once(other)
        assert code == 1
        assert "outerstep node reset" in said
        assert all(path.read_bytes() == data for path, data in before.items())
        reset = [sys.executable, "-m", "node.reset", "--home", str(other)]
        await asyncio.to_thread(subprocess.run, reset, cwd=ROOT, check=True, capture_output=True, timeout=30)
        async with running([other]), Client(read_identity(other).url) as reader:
            await reader.wait_for_height(height, timeout_s=60)
            assert (await reader.account(BOB.address)).balance == 5
            assert await app_hash_after(reader, height) == await app_hash_after(client, height)


async def test_lost_application_data_is_made_again_from_the_engines_blocks(tmp_path: Path) -> None:
    (home,) = make_homes(tmp_path, 1)
    url = read_identity(home).url
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(1, timeout_s=60)
        await transfer(client, 5)
        height = await client.height()
        expected = await app_hash_after(client, height)
    shutil.rmtree(home / "data/app")
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(height + 2, timeout_s=60)
        assert await app_hash_after(client, height) == expected
        await transfer(client, 6)
        assert (await client.account(BOB.address)).balance == 11
    starts = [line for line in (home / "logs/app.log").read_text().splitlines() if "abci_app ready" in line]
    assert "height=0 " in starts[-1]


async def test_an_older_copy_of_the_engines_data_is_explained_and_the_newer_one_works_again(tmp_path: Path) -> None:
    (home,) = make_homes(tmp_path, 1)
    url, data = read_identity(home).url, home / "cometbft/data"
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(2, timeout_s=60)
    shutil.copytree(data, tmp_path / "older")
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(1, timeout_s=60)
        await transfer(client, 5)
        await client.wait_for_height(await client.height() + 2, timeout_s=60)
    shutil.move(data, tmp_path / "newer")
    shutil.copytree(tmp_path / "older", data)
    shutil.copy(tmp_path / "newer" / SIGNING_STATE, data / SIGNING_STATE)
    before = application_data(home)
    code, said = await try_once(home)
    assert code == 1
    assert "The application is ahead of the engine" in said
    assert "outerstep node reset" in said
    assert all(path.read_bytes() == content for path, content in before.items())
    shutil.rmtree(data)
    shutil.move(tmp_path / "newer", data)
    async with running([home]), Client(url, key=ALICE) as client:
        await client.wait_for_height(1, timeout_s=60)
        await transfer(client, 6)
        assert (await client.account(BOB.address)).balance == 11
