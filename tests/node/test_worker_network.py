"""Workers and a scorer as processes on a real chain: killed in mid-round, started again, paid for every round."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from abci_app.messages import Transfer
from abci_app.records import Job
from localnet.network import Localnet
from node.client import Client
from node.job_creation import JobPlan, create_job
from node.keeping import log_series
from node.keys import load_key, write_key
from node.participant import checkpoint_series
from node.storing import fetch_file
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import PrivateKey, format_address
from tests.training.helpers import SENTENCE
from training import SharedState

pytestmark = pytest.mark.network

ROUNDS = 2
STEPS = 400
"""Enough for a kill to meet a worker in the middle of training."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, since a node's Unix socket lies in it."""
    with TemporaryDirectory(prefix="ow-") as name:
        yield Path(name)


class Daemons:
    """`outerstep worker run` and `outerstep scorer run` as processes; all of them end with the test."""

    def __init__(self, folder: Path, url: str, job_id: int) -> None:
        self._folder = folder
        self._common = ("--node", url, "--job", str(job_id), "--threads", "1")
        self._all: list[asyncio.subprocess.Process] = []

    async def start(self, kind: str, name: str, key_file: Path, *options: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "outerstep", kind, "run", *self._common, *options]
        with (self._folder / f"{name}.out").open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *command, "--key", str(key_file), "--home", str(self._folder / name), stdout=out, stderr=out
            )
        self._all.append(process)
        return process

    def words_of(self, name: str) -> str:
        return (self._folder / f"{name}.out").read_text()

    async def stop(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def until(condition: Callable[[], bool], *, timeout_s: float) -> None:
    """Look often, since training takes less than a block on a quiet machine, until `condition()` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


def status_of(home: Path) -> dict[str, object]:
    try:
        status: dict[str, object] = json.loads((home / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return status


def is_in_mid_training(home: Path) -> bool:
    status = status_of(home)
    return status.get("state") == "training" and int(str(status.get("step", 0))) > 20


async def open_job(net: Localnet, owner: PrivateKey, folder: Path, scorer: bytes) -> Job:
    text = folder / "text.txt"
    text.write_text(f"{SENTENCE}\n" * 400)
    model = {"num_layers": 1, "num_heads": 2, "width": 16, "block_length": 16, "inner_steps": STEPS}
    outer = {"compressor": "int8", "outer_lr_milli": 700}
    plan = JobPlan(
        rounds=ROUNDS,
        reward="2",
        scorers=(format_address(scorer),),
        data_replicas=1,
        train_blocks=600,
        training={**model, **outer},
    )
    async with net.client(0, owner) as client:
        return await create_job(client, plan, text, journal=folder / "journal")


async def test_a_worker_killed_in_mid_round_is_paid_for_every_round_all_the_same(folder: Path) -> None:
    owner, names = PrivateKey.generate(), ("w0", "w1")
    async with Localnet(folder / "net", nodes=1) as net, AsyncExitStack() as stack:
        operator_file = Path(net.nodes[0].home) / "keys" / "operator.json"
        operator = load_key(operator_file)
        keys = {name: PrivateKey.generate() for name in names}
        for name in names:
            write_key(folder / f"{name}.json", keys[name])
        async with net.client(0, net.faucet) as client:
            people = [owner, *keys.values()]
            await client.send([Transfer(to=key.address, amount=100 * MICRO_PER_TOKEN) for key in people])
        job = await open_job(net, owner, folder, operator.address)
        daemons = Daemons(folder, net.nodes[0].url, job.id)
        stack.push_async_callback(daemons.stop)
        client = await stack.enter_async_context(net.client(0))

        scorer = await daemons.start("scorer", "s0", operator_file)
        workers = [
            await daemons.start("worker", name, folder / f"{name}.json", "--log-duration", "50") for name in names
        ]
        await until(lambda: is_in_mid_training(folder / "w1"), timeout_s=90)
        workers[1].kill()
        await workers[1].wait()
        workers[1] = await daemons.start("worker", "w1", folder / "w1.json", "--log-duration", "50")

        async with asyncio.timeout(120):
            codes = [await process.wait() for process in (*workers, scorer)]
        assert codes == [0, 0, 0], daemons.words_of("w1")
        await check_outcome(client, job.id, folder)
        assert "warning" not in daemons.words_of("w1"), daemons.words_of("w1")
        assert daemons.words_of("w1").count("committed") == ROUNDS


async def check_outcome(client: Client, job_id: int, folder: Path) -> None:
    job = await client.job(job_id)
    rounds = await client.rounds(job_id)
    assert job is not None
    assert (job.status, job.settled_rounds) == ("done", ROUNDS), [round_.void_reason for round_ in rounds.items]
    for index in range(ROUNDS):
        settlement = await client.settlement(job_id, index)
        assert settlement is not None
        assert [outcome.verdict for outcome in settlement.outcomes] == ["paid", "paid"]
        (sheet,) = await client.scores(job_id, index)
        assert len(sheet.scores) == 2
        assert sheet.state_root == settlement.state_root
    checkpoints = await client.every(lambda cursor: client.deals(series=checkpoint_series(job_id), cursor=cursor))
    newest = max(checkpoints, key=lambda deal: deal.id)
    await fetch_file(client, newest, folder / "newest")
    assert SharedState.from_bytes((folder / "newest").read_bytes()).root == job.state_root
    logs = await client.every(lambda cursor: client.deals(series=log_series(job_id), cursor=cursor))
    assert {deal.tier for deal in logs} == {"temporary"}
    assert len(logs) == 2
