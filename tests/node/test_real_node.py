"""One real node: CometBFT, application and services as processes, through SIGKILL of each of them."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from abci_app import tables
from abci_app.verifiers import default_count
from node.client import Client
from node.init import read_identity
from tests.node.real_node import ALICE, BOB, make_homes, start, transfer

pytestmark = pytest.mark.network


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_homes(tmp_path, 1)[0]


@pytest.fixture
def supervisor(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(home)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def pid_of(home: Path, name: str) -> int:
    return int((home / f"run/{name}.pid").read_text())


async def test_node_pays_proves_and_survives_the_death_of_each_process(
    home: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    async with Client(read_identity(home).url, key=ALICE) as client:
        await client.wait_for_height(1, timeout_s=60)
        await transfer(client, 1)
        account = await client.proved(tables.ACCOUNTS, BOB.address)
        assert account is not None
        assert account.balance == 1
        assert await client.proved(tables.ACCOUNTS, b"\x00" * 20) is None
        for number, name in enumerate(("app", "engine", "services"), start=1):
            before = await client.height()
            victim = pid_of(home, name)
            os.kill(victim, signal.SIGKILL)
            await transfer(client, 10**number)
            assert await client.wait_for_height(before + 2, timeout_s=30) >= before + 2
            assert not psutil.pid_exists(victim)
        assert (await client.account(BOB.address)).balance == 1111
        assert (await client.account(ALICE.address)).nonce == 4
        status = await client.node_status()
        assert (status.chain_id, status.voting_power, status.catching_up) == ("real-1", 100, False)
    family = psutil.Process(supervisor.pid).children(recursive=True)
    assert len(family) == 3 + default_count()
    supervisor.terminate()
    assert await asyncio.to_thread(supervisor.wait, 30) == 0
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    assert list((home / "run").glob("*.pid")) == []


async def test_node_goes_on_after_its_supervisor_was_killed(home: Path, supervisor: subprocess.Popen[bytes]) -> None:
    async with Client(read_identity(home).url, key=ALICE) as client:
        await client.wait_for_height(2, timeout_s=60)
        await transfer(client, 5)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        supervisor.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, family, 10)
        assert alive == []
        with start(home) as again:
            try:
                await client.wait_for_height(4, timeout_s=60)
                await transfer(client, 7)
                assert (await client.account(BOB.address)).balance == 12
            finally:
                again.terminate()
                assert await asyncio.to_thread(again.wait, 30) == 0
