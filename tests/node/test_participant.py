"""Catching up: by computing missed rounds, or from a checkpoint that the chain vouches for, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from abci_app import tables
from abci_app.records import Deal
from abci_app.state import Branch
from da_layer.errors import BlobPruned
from node import participant
from node.client import Client
from node.participant import BlobMissing, CannotCatchUp, Participant, checkpoint_series
from node.worker_home import DaemonHome
from tests.abci_app.rules.chain import address, key
from tests.node.memory_network import LOG, MemoryNetwork, network, open_tiny_job, running, set_up
from tests.node.test_worker import ends, newest_shared
from training import SharedState

__all__ = ["network"]


async def trained(net: MemoryNetwork, folder: Path) -> int:
    """A job with two settled rounds."""
    job_id = await open_tiny_job(net)
    async with running(net, "w0", folder / "w0", job_id) as a, running(net, "w1", folder / "w1", job_id) as b:
        await ends(a.task, b.task)
    return job_id


async def newcomer(net: MemoryNetwork, folder: Path, job_id: int) -> Participant:
    with DaemonHome(folder / "new") as home:
        return Participant(net.client(key("w2")), await set_up(net, "w2", home, job_id), home.data, LOG)


def put_checkpoint(
    net: MemoryNetwork, job_id: int, deal_id: int, *, owner: bytes = address("bob"), size: int = 1
) -> None:
    """An active deal in the job's series of checkpoints."""
    deal = Deal(
        id=deal_id,
        owner=owner,
        key=bytes(32),
        root=bytes(32),
        size=size,
        tier="hot",
        series=checkpoint_series(job_id),
        replicas=1,
        duration=10,
        providers=(address("v0"),),
        status="active",
        escrow=0,
        price_per_block=0,
        created_height=1,
    )
    branch = Branch(net.chain.state)
    tables.DEALS.put(branch, deal, deal_id)
    net.chain.state.apply(branch)


def serve(monkeypatch: pytest.MonkeyPatch, files: dict[int, bytes]) -> None:
    """Downloads of deals give these bytes."""

    async def fetch(client: Client, deal: Deal, target: Path, **options: Any) -> None:
        await asyncio.to_thread(target.write_bytes, files[deal.id])

    monkeypatch.setattr(participant, "fetch_file", fetch)


def prune(net: MemoryNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """No blob can be had any more."""

    async def gone(*arguments: Any, **options: Any) -> bytes:
        raise BlobPruned("pruned", {}, height=5)

    monkeypatch.setattr(participant, "retrieve", gone)


async def test_a_newcomer_computes_all_rounds_from_genesis(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained(network, tmp_path)
    late = await newcomer(network, tmp_path, job_id)
    passed = await late.catch_up(network.chain.job(job_id))
    assert [settlement.round_index for settlement in passed] == [0, 1]
    assert late.shared.root == network.chain.job(job_id).state_root
    assert await late.catch_up(network.chain.job(job_id)) == []


async def test_a_checkpoint_helps_where_blobs_are_gone(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await trained(network, tmp_path)
    prune(network, monkeypatch)
    put_checkpoint(network, job_id, 1)
    serve(monkeypatch, {1: newest_shared(tmp_path / "w0").to_bytes()})
    late = await newcomer(network, tmp_path, job_id)
    await late.catch_up(network.chain.job(job_id))
    assert late.shared.root == network.chain.job(job_id).state_root


async def test_a_checkpoint_that_the_chain_does_not_vouch_for_is_never_taken(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh or forged state is no donor, however new its deal is."""
    job_id = await trained(network, tmp_path)
    prune(network, monkeypatch)
    good = newest_shared(tmp_path / "w0")
    forged = SharedState(good.config, good.round_index, good.rounds_settled, good.parameters_P + 1, good.momentum_P)
    for deal_id in (1, 2, 3):
        put_checkpoint(network, job_id, deal_id)
    serve(monkeypatch, {1: SharedState.genesis(good.config).to_bytes(), 2: forged.to_bytes(), 3: b"garbage"})
    late = await newcomer(network, tmp_path, job_id)
    with pytest.raises(CannotCatchUp, match="no stored checkpoint"):
        await late.catch_up(network.chain.job(job_id))
    assert late.shared.root == late.setup.genesis.root
    assert not list((tmp_path / "new" / "data").glob("checkpoint-*"))


async def test_files_that_strangers_put_into_the_series_do_not_hide_the_checkpoint_of_a_paid_worker(
    network: MemoryNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are too large for a state are not even fetched."""
    job_id = await trained(network, tmp_path)
    prune(network, monkeypatch)
    good = newest_shared(tmp_path / "w0").to_bytes()
    put_checkpoint(network, job_id, 1, owner=address("w0"), size=len(good))
    for deal_id in (2, 3, 4, 5):
        put_checkpoint(network, job_id, deal_id)
    put_checkpoint(network, job_id, 6, owner=address("w0"), size=len(good) + 10_000)
    serve(monkeypatch, {1: good} | dict.fromkeys((2, 3, 4, 5), b"junk"))
    late = await newcomer(network, tmp_path, job_id)
    await late.catch_up(network.chain.job(job_id))
    assert late.shared.root == network.chain.job(job_id).state_root


async def test_a_blob_that_is_out_of_reach_for_now_is_waited_for(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained(network, tmp_path)
    kept = dict(network.blobs)
    network.blobs.clear()
    late = await newcomer(network, tmp_path, job_id)
    with pytest.raises(BlobMissing):
        await late.catch_up(network.chain.job(job_id))
    network.blobs.update(kept)
    await late.catch_up(network.chain.job(job_id))
    assert late.shared.root == network.chain.job(job_id).state_root


async def test_a_settlement_that_does_not_follow_from_its_blobs_stops_the_participant(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await trained(network, tmp_path)
    settlement = network.chain.settlement(1, job_id)
    assert settlement is not None
    branch = Branch(network.chain.state)
    tables.SETTLEMENTS.put(branch, replace(settlement, state_root=bytes(32)), job_id, 1)
    network.chain.state.apply(branch)
    late = await newcomer(network, tmp_path, job_id)
    with pytest.raises(CannotCatchUp, match="round 1 gives root"):
        await late.catch_up(network.chain.job(job_id))
    assert late.shared.round_index == 0


async def test_a_state_of_another_chain_is_dropped_for_genesis(network: MemoryNetwork, tmp_path: Path) -> None:
    job_id = await trained(network, tmp_path)
    late = await newcomer(network, tmp_path, job_id)
    good = newest_shared(tmp_path / "w0")
    late.shared = SharedState(good.config, 1, 2, good.parameters_P + 1, good.momentum_P)
    await late.catch_up(network.chain.job(job_id))
    assert late.shared.root == network.chain.job(job_id).state_root


async def test_unusable_payloads_are_rejected_by_name_and_the_rest_goes_on(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await trained(network, tmp_path)
    settlement = network.chain.settlement(0, job_id)
    assert settlement is not None
    (first, blob), (second, other) = settlement.blobs
    network.blobs[blob] = b"not an update"
    late = await newcomer(network, tmp_path, job_id)
    result = await late.compute(0, [(first, blob), (second, other)])
    assert (result.rejected, result.included) == ((first,), (second,))


async def test_a_round_without_a_usable_update_leaves_the_state_as_it_is(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await trained(network, tmp_path)
    settlement = network.chain.settlement(0, job_id)
    assert settlement is not None
    for _, blob in settlement.blobs:
        network.blobs[blob] = b"not an update"
    late = await newcomer(network, tmp_path, job_id)
    result = await late.compute(0, settlement.blobs)
    assert result.state.root == late.setup.genesis.root
    assert result.rejected == tuple(worker for worker, _ in settlement.blobs)
