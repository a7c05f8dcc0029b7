"""Homes of real nodes, and the supervisor as a process, for tests marked `network`."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from abci_app.messages import Transfer
from node import children
from node.client import Client
from node.config import ports_from
from node.genesis import install_genesis, make_genesis
from node.init import connect_peers, init_node
from primitives.keys import PrivateKey
from tests.ports import free_ports

ALICE = PrivateKey.from_seed("alice")
BOB = PrivateKey.from_seed("bob")
TOKENS = 10**12
ROOT = Path(children.__file__).parent.parent
ONE_TRY = "from node import children, supervisor; children.MAX_QUICK_FAILURES = 1; "


def make_homes(folder: Path, count: int) -> list[Path]:
    """Nodes of one chain that know each other; the first is the only validator, and Alice has money."""
    homes = [folder / f"node{index}" for index in range(count)]
    identities = [init_node(home, network=ports_from(free_ports(4))) for home in homes]
    genesis = make_genesis(identities[:1], {ALICE.address: TOKENS}, chain_id="real-1")
    for home in homes:
        install_genesis(home, genesis)
        connect_peers(home, identities)
    return homes


def start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "node.supervisor", "--home", str(home)]
    with (home / "logs/supervisor.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


async def stop(process: subprocess.Popen[bytes]) -> int:
    """In order; the exit status."""
    process.terminate()
    try:
        return await asyncio.to_thread(process.wait, 30)
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def running(homes: Sequence[Path]) -> AsyncIterator[None]:
    """All started, and all stopped in order at the end."""
    processes = [start(home) for home in homes]
    try:
        yield
    finally:
        codes = await asyncio.gather(*map(stop, processes))
    assert codes == [0] * len(homes)


async def try_once(home: Path) -> tuple[int, str]:
    """A supervisor that gives up at the first failure: exit status and what it said."""
    run = f"raise SystemExit(supervisor.main(['--home', {str(home)!r}]))"
    answer = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", ONE_TRY + run], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return answer.returncode, answer.stderr


async def transfer(client: Client, amount: int) -> None:
    await client.send([Transfer(to=BOB.address, amount=amount)], timeout_s=60)
