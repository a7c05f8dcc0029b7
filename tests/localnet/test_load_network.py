"""`outerstep localnet load` on real networks: every transaction is in a block, and the chain says the same."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from localnet.load.blocks import block_txs
from localnet.load.errors import LoadError
from localnet.load.funding import fund, new_accounts
from localnet.load.target import find_target
from localnet.network import Localnet
from primitives.amounts import MICRO_PER_TOKEN

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]
ENDS_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(short_folder: Path) -> AsyncIterator[Localnet]:
    """Two nodes, shared by the tests of this file."""
    async with Localnet(short_folder / "pair", nodes=2) as network:
        yield network


@dataclass(frozen=True, slots=True)
class Ended:
    code: int | None
    stdout: str
    stderr: str


async def start(net: Localnet, *options: str | int) -> asyncio.subprocess.Process:
    words = ["-m", "localnet.cli", "load", "--home", str(net.home), *map(str, options)]
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


async def finish(process: asyncio.subprocess.Process) -> Ended:
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), ENDS_S)
    finally:
        if process.returncode is None:
            process.kill()
    return Ended(process.returncode, stdout.decode(), stderr.decode())


async def start_sending(net: Localnet) -> asyncio.subprocess.Process:
    """A long load; returns once it has begun to send."""
    process = await start(net, "--rate", 50, "--seconds", 60, "--json")
    assert process.stderr is not None
    async with asyncio.timeout(ENDS_S):
        while b"sending" not in (line := await process.stderr.readline()):
            assert line, "the load ended early"
    await asyncio.sleep(1.0)
    return process


async def count_txs(net: Localnet, first: int) -> tuple[int, int]:
    """The newest height, and how many transactions the blocks from `first` up to it hold."""
    height = max(health.height for health in await net.health())
    await net.wait_for_height(height)
    async with aiohttp.ClientSession() as session:
        blocks = [await block_txs(session, net.nodes[0].engine_url, h) for h in range(first, height + 1)]
    return height, sum(map(len, blocks))


async def test_payments_at_a_rate_are_all_in_blocks_and_counted_exactly(pair: Localnet) -> None:
    before, _ = await count_txs(pair, 1)
    ended = await finish(await start(pair, "--rate", 150, "--seconds", 3, "--accounts", 120, "--json"))
    assert ended.code == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["committed"] == result["submitted"] > 3 * 150
    assert [result[name] for name in ("failed", "refused", "lost", "reasons")] == [0, 0, 0, {}]
    assert (result["kind"], result["rate"], result["nodes"], result["connections"]) == ("transfers", 150, 2, 2)
    assert result["window_s"] >= 3
    assert result["committed_tps"] == pytest.approx(150, rel=0.5)
    assert 0 < result["finality_p50_s"] <= result["finality_p95_s"] <= result["finality_p99_s"]
    assert result["cpu_s_app"] > 0
    assert result["cpu_s_engine"] > 0
    _, on_chain = await count_txs(pair, before + 1)
    assert on_chain == result["submitted"] + 2, "and two that gave the 120 accounts their money"


async def test_commitments_succeed_as_submissions_of_open_rounds(pair: Localnet) -> None:
    options = ("--kind", "commitments", "--rate", 40, "--seconds", 2, "--messages", 3, "--accounts", 40, "--json")
    ended = await finish(await start(pair, *options))
    assert ended.code == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["committed"] == result["submitted"] > 2 * 40
    assert [result[name] for name in ("failed", "refused", "lost")] == [0, 0, 0]
    assert result["messages_per_s"] == pytest.approx(3 * result["committed_tps"])
    async with pair.client(0) as client:
        jobs = await client.every(client.jobs)
        submissions = [each for job in jobs for each in await client.submissions(job.id, 0)]
        assert len(submissions) == 3 * result["submitted"]
        assert len({each.worker for each in submissions}) == 40
        assert {job.status for job in jobs} == {"closing"}, "no other round follows"


async def test_a_table_is_shown_to_people(pair: Localnet) -> None:
    ended = await finish(await start(pair, "--rate", 20, "--seconds", 1, "--messages", 2))
    assert ended.code == 0, ended.stderr
    assert "transfers on 2 nodes" in ended.stdout
    for words in ("p99", "longest", "CPU, application", "2 in each", "0 failed, 0 refused, 0 lost"):
        assert words in ended.stdout


async def test_a_faucet_without_the_money_is_an_error_that_says_what_to_do(pair: Localnet) -> None:
    target = await find_target(pair.home)
    with pytest.raises(LoadError, match=r"takes 1,500,000\.0003: choose fewer --accounts"):
        await fund(target, new_accounts(2), 750_000 * MICRO_PER_TOKEN, lambda done, total: None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--kind", "commitments", "--rate", 50_000), "200,000 of commitments"),
        (("--kind", "commitments", "--rate", 10, "--seconds", 61), "with commitments it can be at most 60"),
        (("--rate", 100_000, "--seconds", 600), "1,000,000 of transfers"),
        (("--rate", 1, "--connections", 50), "at most 5"),
    ],
)
async def test_more_than_can_be_prepared_is_refused_before_anything_is_paid(
    pair: Localnet, options: tuple[str | int, ...], reason: str
) -> None:
    async with pair.client(0) as client:
        before = await client.account(pair.faucet.address)
        ended = await finish(await start(pair, *options))
        assert await client.account(pair.faucet.address) == before
    assert ended.code == 1
    assert reason in ended.stderr
    assert ended.stdout == ""


async def test_ctrl_c_ends_a_load_and_the_next_one_works(pair: Localnet) -> None:
    process = await start_sending(pair)
    process.send_signal(signal.SIGINT)
    ended = await finish(process)
    assert ended.code == 130
    assert "stopped" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    again = await finish(await start(pair, "--rate", 20, "--seconds", 1))
    assert again.code == 0, again.stderr


async def test_a_network_that_stops_in_the_middle_is_a_clear_error_and_so_is_one_that_is_down(
    short_folder: Path,
) -> None:
    async with Localnet(short_folder / "single", nodes=1) as net:
        process = await start_sending(net)
        await net.stop_node(0)
        ended = await finish(process)
        assert ended.code == 1
        assert "Has a node ended? See `outerstep localnet status" in ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.stdout == ""
        down = await finish(await start(net))
        assert down.code == 1
        assert "node0 is not ready" in down.stderr
