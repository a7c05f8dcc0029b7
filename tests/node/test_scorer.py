"""A scorer judges updates and attests states, through the real rules, in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from abci_app.messages import Message, RevealUpdate
from node.daemon import follow
from node.scorer import NotNamed, Scorer
from node.worker_home import DaemonHome
from tests.abci_app.rules.chain import address, key
from tests.node.memory_network import LOG, MemoryNetwork, network, open_tiny_job, running, set_up
from training.scoring import UNUSABLE_SCORE

__all__ = ["network"]
TIMEOUT_S = 30.0


@contextlib.asynccontextmanager
async def scoring(net: MemoryNetwork, name: str, home_path: Path, job_id: int) -> AsyncIterator["asyncio.Task[None]"]:
    """The scorer `name`, following the job."""
    with DaemonHome(home_path) as home:
        client = net.client(key(name))
        scorer = Scorer(client, key(name), home, await set_up(net, name, home, job_id), LOG, max_windows=8)
        stop = asyncio.Event()
        task = asyncio.create_task(follow(client, job_id, scorer, stop, LOG))
        try:
            yield task
        finally:
            stop.set()
            await asyncio.wait({task})
            await client.close()


async def test_every_round_is_scored_and_attested(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network, scorers=(address("v0"),))
    async with (
        scoring(network, "v0", tmp_path / "v0", job_id) as scorer,
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
        asyncio.timeout(TIMEOUT_S),
    ):
        await asyncio.gather(a.task, b.task, scorer)
    assert network.chain.job(job_id).settled_rounds == 2
    for index in (0, 1):
        (sheet,) = await network.client(key("v0")).scores(job_id, index)
        settlement = network.chain.settlement(index, job_id)
        assert settlement is not None
        assert sheet.state_root == settlement.state_root
        assert [worker for worker, _ in sheet.scores] == sorted((address("w0"), address("w1")))
        assert all(score > 0 for _, score in sheet.scores), "training on the text lowers the held-out loss"


@pytest.mark.parametrize("found", ["garbage", "the payload of another worker"])
async def test_a_worker_whose_blob_holds_no_update_of_its_own_is_scored_out(
    network: MemoryNetwork, tmp_path: Path, found: str
) -> None:
    job_id = await open_tiny_job(network, scorers=(address("v0"),), num_rounds=1)
    revealed: dict[bytes, bytes] = {}

    def spoil(sender: bytes, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, RevealUpdate) and message.round_index == 0:
                revealed[sender] = message.blob
        if {address("w0"), address("w1")} <= revealed.keys():
            copied = network.blobs[revealed[address("w0")]]
            network.blobs[revealed[address("w1")]] = b"garbage" if found == "garbage" else copied

    network.on_send = spoil
    async with (
        scoring(network, "v0", tmp_path / "v0", job_id) as scorer,
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
        asyncio.timeout(TIMEOUT_S),
    ):
        await asyncio.gather(a.task, b.task, scorer)
    (sheet,) = await network.client(key("v0")).scores(job_id, 0)
    scores = dict(sheet.scores)
    assert scores[address("w1")] == UNUSABLE_SCORE
    assert scores[address("w0")] > 0
    spoilt = network.chain.round(0, job_id)
    assert (spoilt.status, spoilt.void_reason) == ("void", "too_few_included")
    assert network.chain.job(job_id).status == "done"


async def test_a_validator_that_the_job_does_not_name_is_told(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network, scorers=(address("v0"),))
    with pytest.raises(NotNamed, match="does not name"):
        async with scoring(network, "v1", tmp_path, job_id):
            pass
