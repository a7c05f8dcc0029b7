"""Checkpoints of a job in storage: who stores them, and that only the newest are kept whoever stored last."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from abci_app import tables
from abci_app.records import Deal, Settlement, Verdict, WorkerOutcome
from abci_app.state import Branch
from node import storing
from node.keeping import Keeper, stores_checkpoint
from node.participant import checkpoint_series
from node.worker_home import DaemonHome
from node.worker_options import WorkerOptions
from storage.errors import UploadFailed
from storage.terms import DealTerms
from tests.abci_app.rules.chain import address, key
from tests.node.memory_network import CAPTURED, LOG, MemoryNetwork, network, open_tiny_job, running
from tests.node.test_storing import FakeStorage
from tests.node.test_worker import ends
from training import SharedState

__all__ = ["network"]
WORKERS = ("w0", "w1", "w2")


class RecordingStorage(FakeStorage):
    """Notes the round of every checkpoint that is stored."""

    rounds: dict[int, int]
    """Deal -> round."""

    async def upload(
        self, path: Path, deal: DealTerms, providers: dict[bytes, str], *arguments: Any, **options: Any
    ) -> list[tuple[bytes, bytes]]:
        RecordingStorage.rounds[deal.id] = round_in(path)
        return await super().upload(path, deal, providers, *arguments, **options)


@pytest.fixture(autouse=True)
def storage(monkeypatch: pytest.MonkeyPatch) -> None:
    RecordingStorage.rounds = {}
    monkeypatch.setattr(storing, "StorageClient", RecordingStorage)


def round_in(path: Path) -> int:
    return SharedState.from_bytes(path.read_bytes()).round_index


def settlement(index: int, **verdicts: Verdict) -> Settlement:
    outcomes = sorted(
        (WorkerOutcome(address(name), verdict, 0, 0, 0, 0) for name, verdict in verdicts.items()),
        key=lambda outcome: outcome.worker,
    )
    return Settlement(1, index, 10 * index, bytes(32), (), tuple(outcomes), 0)


def storers(item: Settlement) -> list[str]:
    return [name for name in WORKERS if stores_checkpoint(address(name), item)]


def kept(net: MemoryNetwork, job_id: int) -> list[Deal]:
    deals = [deal for _, deal in tables.DEALS.iterate(net.chain.state)]
    return [deal for deal in deals if deal.series == checkpoint_series(job_id) and deal.status == "active"]


def test_one_paid_worker_stores_each_checkpoint_and_they_take_turns() -> None:
    turns = [storers(settlement(index, w0="paid", w1="paid", w2="paid")) for index in range(6)]
    assert all(len(turn) == 1 for turn in turns)
    assert turns[:3] == turns[3:]
    assert {turn[0] for turn in turns[:3]} == set(WORKERS)


@pytest.mark.parametrize("verdict", ["absent", "no_reveal", "rejected", "scored_out", "disagreed"])
def test_a_worker_that_is_not_paid_is_never_the_one_to_store(verdict: Verdict) -> None:
    for index in range(4):
        assert len(storers(settlement(index, w0=verdict, w1="paid", w2="paid"))) == 1
        assert storers(settlement(index, w0=verdict, w1="paid", w2=verdict)) == ["w1"]


async def test_the_last_three_checkpoints_are_kept_although_the_storing_worker_changes(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network, num_rounds=5)
    async with (
        running(network, "w0", tmp_path / "w0", job_id, store_checkpoints=None) as a,
        running(network, "w1", tmp_path / "w1", job_id, store_checkpoints=None) as b,
    ):
        await ends(a.task, b.task)
    assert sorted(RecordingStorage.rounds.values()) == [0, 1, 2, 3, 4]
    deals = kept(network, job_id)
    assert sorted(RecordingStorage.rounds[deal.id] for deal in deals) == [2, 3, 4]
    assert {deal.owner for deal in deals} == {address("w0"), address("w1")}


async def test_one_that_cannot_store_costs_its_own_checkpoints_only(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await open_tiny_job(network, num_rounds=4)

    async def broken(state: SharedState) -> None:
        raise UploadFailed([], {bytes(20): "disk full"})

    async with (
        running(network, "w0", tmp_path / "w0", job_id, store_checkpoints=None) as a,
        running(network, "w1", tmp_path / "w1", job_id, store_checkpoints=None) as b,
    ):
        a.worker._keeper._store_checkpoint = broken  # type: ignore[method-assign]
        await ends(a.task, b.task)
    assert len(RecordingStorage.rounds) == 2
    assert any("storing the checkpoint of round" in entry["event"] for entry in CAPTURED.entries)


async def trained_by_w0(net: MemoryNetwork, folder: Path, num_rounds: int) -> int:
    """A job whose every checkpoint w0 stored, all still there."""
    job_id = await open_tiny_job(net, num_rounds=num_rounds)
    async with (
        running(net, "w0", folder / "w0", job_id, store_checkpoints=True, keep_checkpoints=99) as a,
        running(net, "w1", folder / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    assert len(kept(net, job_id)) == num_rounds
    return job_id


async def forget(net: MemoryNetwork, name: str, folder: Path, job_id: int) -> None:
    """What a restarted worker does at a settlement."""
    with DaemonHome(folder) as home:
        keeper = Keeper(net.client(key(name)), home, WorkerOptions(job_id=job_id, keep_checkpoints=2), LOG)
        keeper.forget_old_checkpoints()
        await keeper.finish(timeout_s=10.0)


async def test_after_a_restart_the_round_of_a_deal_follows_from_its_height(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await trained_by_w0(network, tmp_path, 4)
    await forget(network, "w0", tmp_path / "w0", job_id)
    assert [RecordingStorage.rounds[deal.id] for deal in kept(network, job_id)] == [2, 3]


async def test_nobody_deletes_what_another_one_stored(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained_by_w0(network, tmp_path, 4)
    await forget(network, "w1", tmp_path / "w1", job_id)
    assert len(kept(network, job_id)) == 4


async def test_nothing_is_deleted_before_enough_rounds_are_settled(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained_by_w0(network, tmp_path, 1)
    await forget(network, "w0", tmp_path / "w0", job_id)
    assert len(kept(network, job_id)) == 1


async def test_void_rounds_do_not_count_among_those_that_are_kept(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained_by_w0(network, tmp_path, 3)
    branch = Branch(network.chain.state)
    job = tables.JOBS.get(branch, job_id)
    last = tables.SETTLEMENTS.get(branch, job_id, 2)
    assert job is not None
    assert last is not None
    tables.SETTLEMENTS.delete(branch, job_id, 2)
    tables.SETTLEMENTS.put(branch, replace(last, round_index=7), job_id, 7)
    tables.JOBS.put(branch, replace(job, settled_round=7), job_id)
    network.chain.state.apply(branch)
    await forget(network, "w0", tmp_path / "w0", job_id)
    assert [RecordingStorage.rounds[deal.id] for deal in kept(network, job_id)] == [1, 2]


async def test_finishing_gives_up_on_storage_that_hangs(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*arguments: Any, **options: Any) -> list[tuple[bytes, bytes]]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(RecordingStorage, "upload", hang)
    job_id = await open_tiny_job(network)
    job = network.chain.job(job_id)
    with DaemonHome(tmp_path) as home:
        keeper = Keeper(network.client(key("w0")), home, WorkerOptions(job_id=job.id), LOG)
        home.log_file.write_text("{}\n")
        keeper.forget_old_checkpoints()
        keeper._add("storing the log", keeper._store_log)
        async with asyncio.timeout(10):
            await keeper.finish(timeout_s=0.1)
        assert not (home.data / "log.copy").exists()
