"""What a worker does when a node goes away in any phase, and when a blob of the round cannot be had."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from abci_app.messages import AttestState, CommitUpdate, JoinJob, Message, RevealUpdate
from da_layer.errors import BlobUnavailable
from node import daemon, participant
from node.errors import NodeUnreachable
from primitives.blobs import BlobHeader
from tests.abci_app.rules.chain import address, key
from tests.node.memory_network import CAPTURED, MemoryClient, MemoryNetwork, network, open_tiny_job, running
from tests.node.test_worker import TIMEOUT_S, ends

__all__ = ["network"]
PHASES = [JoinJob, CommitUpdate, RevealUpdate, AttestState]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "FIRST_PAUSE_S", 0.01)


async def comes_back(net: MemoryNetwork) -> None:
    """The node answers again once somebody has noticed that it does not."""
    await net.refused.wait()
    net.unreachable = False


def verdicts(net: MemoryNetwork, job_id: int) -> list[str]:
    return [
        outcome.verdict
        for index in range(2)
        if (settled := net.chain.settlement(index, job_id)) is not None
        for outcome in settled.outcomes
    ]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("taken", [False, True], ids=["before it took the transaction", "after it took it"])
async def test_a_restart_of_the_node_in_any_phase_costs_nothing(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: type[Message], taken: bool
) -> None:
    job_id = await open_tiny_job(network)
    send = MemoryClient.send
    broken = False

    async def dying(self: MemoryClient, messages: Sequence[Message], **options: Any) -> Any:
        nonlocal broken
        mine = self._account.address == address("w1") and any(isinstance(message, phase) for message in messages)
        if broken or not mine:
            return await send(self, messages, **options)
        broken = True
        if taken:
            await send(self, messages, **options)
        network.unreachable = True
        raise NodeUnreachable("http://memory", "connection reset")

    monkeypatch.setattr(MemoryClient, "send", dying)
    returning = asyncio.create_task(comes_back(network))
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task, returning)
    assert broken
    assert verdicts(network, job_id) == ["paid"] * 4
    assert len(network.messages_of(key("w1"), CommitUpdate)) == 2


class Scarce:
    """A blob of another worker that w1 cannot fetch so many times."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = asyncio.Event()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        retrieve = participant.retrieve

        async def scarce(session: Any, header: BlobHeader, *arguments: Any, **options: Any) -> bytes:
            if self.left > 0:
                self.left -= 1
                self.asked.set()
                raise BlobUnavailable("too few rows", {}, have=1, need=2)
            return await retrieve(session, header, *arguments, **options)

        monkeypatch.setattr(participant, "retrieve", scarce)


async def test_a_blob_that_cannot_be_had_is_asked_for_again_at_every_block_of_the_phase(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await open_tiny_job(network, aggregate_blocks=200)
    scarce = Scarce(6)
    scarce.install(monkeypatch)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            await scarce.asked.wait()
            while scarce.left > 0:
                scarce.asked.clear()
                await network.make_block()
                await scarce.asked.wait()
            await network.make_block()
        await ends(a.task, b.task)
    assert verdicts(network, job_id) == ["paid"] * 4
    told = [entry for entry in CAPTURED.entries if entry["event"] == "not possible just now"]
    assert 1 <= len(told) <= 2, "once for each worker"


async def test_a_blob_that_never_comes_back_voids_the_round_and_the_worker_goes_on(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await open_tiny_job(network, num_rounds=1)
    scarce = Scarce(10**9)
    scarce.install(monkeypatch)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            await scarce.asked.wait()
            await network.pass_deadline(0)
            scarce.left = 0
            assert network.chain.round(0, job_id).status == "void"
        await ends(a.task, b.task)
    assert network.chain.job(job_id).settled_rounds == 1
