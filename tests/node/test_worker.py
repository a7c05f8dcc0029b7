"""A worker follows a job through the real rules, in memory."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from abci_app.messages import AttestState, CommitUpdate, JoinJob, Message, RegisterWorker, RevealUpdate
from node.errors import NodeUnreachable
from node.intents import IntentStore
from node.membership import CannotJoin
from node.worker import KeyInUse
from node.worker_home import DaemonHome, HomeError, HomeOwner
from primitives.hashing import sha256
from tests.abci_app.rules.chain import address, key
from tests.node.memory_network import CAPTURED, MemoryNetwork, network, open_tiny_job, running
from training import SharedState

__all__ = ["network"]
TIMEOUT_S = 30.0


async def ends(*tasks: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*tasks)


def newest_shared(home: Path) -> SharedState:
    folder = max((home / "states").iterdir(), key=lambda path: int(path.name))
    return SharedState.from_bytes((folder / "shared.safetensors").read_bytes())


async def test_two_workers_settle_every_round_and_hold_the_chains_state(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    job = network.chain.job(job_id)
    assert (job.status, job.settled_rounds) == ("done", 2)
    for home in (tmp_path / "w0", tmp_path / "w1"):
        state = newest_shared(home)
        assert (state.root, state.round_index) == (job.state_root, 1)
        status = json.loads((home / "status.json").read_bytes())
        assert status["state"] == "done"
        assert status["earned"] == 100_000_000
        assert status["bytes_sent"] > 0
        assert list((home / "intents").iterdir()) == []
    assert job.state_root != job.terms.genesis_root


async def test_each_round_takes_one_commitment_one_opening_and_one_attestation(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    for name in ("w0", "w1"):
        for kind in (CommitUpdate, RevealUpdate, AttestState):
            assert [m.round_index for m in network.messages_of(key(name), kind)] == [0, 1]  # type: ignore[union-attr]
        assert len(network.messages_of(key(name), RegisterWorker)) == 1
        assert len(network.messages_of(key(name), JoinJob)) == 1


@pytest.mark.parametrize("moment", [CommitUpdate, RevealUpdate, AttestState])
async def test_a_worker_killed_before_it_sends_goes_on_after_its_restart(
    network: MemoryNetwork, tmp_path: Path, moment: type[Message]
) -> None:
    job_id = await open_tiny_job(network)

    def kill(sender: bytes, messages: Sequence[Message]) -> None:
        if sender == address("w1") and any(isinstance(message, moment) for message in messages):
            network.on_send = None
            raise asyncio.CancelledError

    network.on_send = kill
    async with running(network, "w0", tmp_path / "w0", job_id) as a:
        async with running(network, "w1", tmp_path / "w1", job_id) as b:
            await asyncio.wait({b.task}, timeout=TIMEOUT_S)
            assert b.task.cancelled()
        async with running(network, "w1", tmp_path / "w1", job_id) as again:
            await ends(a.task, again.task)
    outcomes = [outcome for index in (0, 1) for outcome in network.chain.settlement(index, job_id).outcomes]  # type: ignore[union-attr]
    assert [outcome.verdict for outcome in outcomes] == ["paid"] * 4
    assert len(network.messages_of(key("w1"), CommitUpdate)) == 2


async def test_a_restarted_worker_trains_on_bit_for_bit_as_if_it_had_not_stopped(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    """The data cursor, the inner optimizer and the error feedback are those of the settled round."""
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    undisturbed = network.chain.job(job_id).state_root

    second = await open_tiny_job(network, max_workers=3)

    def kill_in_second_round(sender: bytes, messages: Sequence[Message]) -> None:
        if sender == address("w1") and network.chain.job(second).settled_rounds == 1:
            network.on_send = None
            raise asyncio.CancelledError

    network.on_send = kill_in_second_round
    async with running(network, "w0", tmp_path / "c0", second) as a:
        async with running(network, "w1", tmp_path / "c1", second) as b:
            await asyncio.wait({b.task}, timeout=TIMEOUT_S)
            assert b.task.cancelled()
        async with running(network, "w1", tmp_path / "c1", second) as again:
            await ends(a.task, again.task)
    assert network.chain.job(second).state_root == undisturbed


async def test_a_worker_started_again_after_the_end_still_says_what_it_earned(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    async with running(network, "w0", tmp_path / "w0", job_id) as again:
        await ends(again.task)
    status = json.loads((tmp_path / "w0" / "status.json").read_bytes())
    assert (status["state"], status["settled_rounds"], status["earned"]) == ("done", 2, 100_000_000)


async def test_a_worker_that_was_away_recomputes_the_rounds_it_missed(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network, num_rounds=3)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
        running(network, "w2", tmp_path / "w2", job_id) as late,
    ):
        await ends(a.task, b.task, late.task)
    assert newest_shared(tmp_path / "w2").root == network.chain.job(job_id).state_root


async def test_a_void_round_leaves_the_model_and_the_private_state_alone(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network, num_rounds=1)
    refused = asyncio.Event()

    def silent_in_round_0(sender: bytes, messages: Sequence[Message]) -> None:
        commits = [message for message in messages if isinstance(message, CommitUpdate)]
        if sender == address("w1") and commits and commits[0].round_index == 0:
            refused.set()
            raise NodeUnreachable("http://memory", "unplugged")

    network.on_send = silent_in_round_0
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            await refused.wait()
            while not network.messages_of(key("w0"), CommitUpdate):
                await network.next_block()
            await network.pass_deadline(0)
            await network.pass_deadline(0)
        await ends(a.task, b.task)
    assert network.chain.round(0, job_id).status == "void"
    assert network.chain.job(job_id).status == "done"
    assert newest_shared(tmp_path / "w1").rounds_settled == 1


async def test_an_outage_of_the_node_is_told_once_and_survived(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        network.unreachable = True
        await network.refused.wait()
        network.unreachable = False
        await ends(a.task, b.task)
    assert network.chain.job(job_id).status == "done"
    told = [entry for entry in CAPTURED.entries if entry["event"] == "waiting for the node"]
    assert 1 <= len(told) <= 2, "once for each worker"


async def test_a_worker_whose_key_another_one_uses_gives_up_after_two_rounds(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network)

    def other_commits_first(sender: bytes, messages: Sequence[Message]) -> None:
        for message in messages:
            if sender == address("w0") and isinstance(message, CommitUpdate):
                network.chain.ok("w0", replace(message, commitment=sha256(b"of the other process")))

    network.on_send = other_commits_first
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id),
    ):
        async with asyncio.timeout(TIMEOUT_S):
            while len(network.messages_of(key("w1"), RevealUpdate)) < 1:
                await network.next_block()
            await network.pass_deadline(0)
            with pytest.raises(KeyInUse, match="another worker"):
                await a.task
    assert network.chain.round(0, job_id).status == "void"


async def test_a_home_serves_one_worker_at_a_time(network: MemoryNetwork, tmp_path: Path) -> None:
    with DaemonHome(tmp_path), pytest.raises(HomeError, match=f"in use by process {os.getpid()}"), DaemonHome(tmp_path):
        pass
    with DaemonHome(tmp_path) as free:
        assert free.path == tmp_path


def test_a_home_belongs_to_one_job_and_account(tmp_path: Path) -> None:
    with DaemonHome(tmp_path) as home:
        home.bind(HomeOwner(chain_id="a", job_id=1, account="outer1x"))
        home.bind(HomeOwner(chain_id="a", job_id=1, account="outer1x"))
        with pytest.raises(HomeError, match="belongs to job 1"):
            home.bind(HomeOwner(chain_id="a", job_id=2, account="outer1x"))


async def test_a_worker_without_money_says_so_and_ends(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network)
    async with running(network, "w0", tmp_path / "w0", job_id, bond=10**15) as a:
        with pytest.raises(CannotJoin, match="needs"):
            await ends(a.task)


async def test_stopping_is_clean_in_the_middle_of_training(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        async with asyncio.timeout(TIMEOUT_S):
            while network.chain.job(job_id).open_round < 0:
                await network.next_block()
        a.stop.set()
        b.stop.set()
        await ends(a.task, b.task)
    assert json.loads((tmp_path / "w0" / "status.json").read_bytes())["state"] == "stopped"


def test_an_intent_that_is_damaged_on_disk_is_no_intent(tmp_path: Path) -> None:
    (tmp_path / "3.intent").write_bytes(b"\x93torn")
    store = IntentStore(tmp_path)
    assert store.get(3) is None
    assert store.rounds() == [3]
