"""One real node: CometBFT, application and services as processes, through SIGKILL of each of them."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from abci_app import tables
from abci_app.messages import Transfer
from node import children
from node.client import Client
from node.config import ports_from
from node.genesis import install_genesis, make_genesis
from node.init import init_node, read_identity
from primitives.keys import PrivateKey

pytestmark = pytest.mark.network

ALICE = PrivateKey.from_seed("alice")
BOB = PrivateKey.from_seed("bob")
TOKENS = 10**12
ROOT = Path(children.__file__).parent.parent


def free_base_port() -> int:
    """The first of four free ports in a row."""
    for base in range(41000, 60000, 10):
        try:
            for port in range(base, base + 4):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return base
    raise OSError("no four free ports in a row")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "node"
    identity = init_node(home, network=ports_from(free_base_port()))
    install_genesis(home, make_genesis([identity], {ALICE.address: TOKENS}, chain_id="real-1"))
    return home


def start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "node.supervisor", "--home", str(home)]
    with (home / "logs/supervisor.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


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


async def transfer(client: Client, amount: int) -> None:
    await client.send([Transfer(to=BOB.address, amount=amount)], timeout_s=60)


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
    assert len(family) == 3
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


async def test_engine_whose_data_was_reset_alone_is_given_up_with_advice(
    home: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    """FAULTS C2."""
    async with Client(read_identity(home).url, key=ALICE) as client:
        await client.wait_for_height(2, timeout_s=60)
    supervisor.terminate()
    assert await asyncio.to_thread(supervisor.wait, 30) == 0
    state = {path: path.read_bytes() for path in (home / "data/app").iterdir() if path.suffix == ".ldb"}
    for path in (home / "cometbft/data").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    once = "from node import children, supervisor; children.MAX_QUICK_FAILURES = 1; "
    run = f"raise SystemExit(supervisor.main(['--home', {str(home)!r}]))"
    answer = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", once + run], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 1
    assert "outerstep node reset" in answer.stderr
    assert all(path.read_bytes() == data for path, data in state.items())
