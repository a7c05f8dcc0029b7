"""A worker's bond is put up once, filled up after a slash, and not for ever."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from abci_app import tables
from abci_app.messages import JoinJob, LeaveJob, RegisterWorker
from abci_app.state import Branch
from node.membership import CannotJoin, Membership
from node.worker_options import WorkerOptions
from tests.abci_app.rules.chain import TOKEN, address, key
from tests.node.memory_network import CAPTURED, LOG, MemoryNetwork, network, open_tiny_job, running
from tests.node.test_worker import ends

__all__ = ["network"]


def membership(net: MemoryNetwork, job_id: int, name: str = "w0", **options: int) -> Membership:
    genesis_root = net.chain.job(job_id).terms.genesis_root
    return Membership(net.client(key(name)), address(name), genesis_root, WorkerOptions(job_id=job_id, **options), LOG)


def lose_bond(net: MemoryNetwork, amount: int) -> None:
    """w0 left the job, and a slash took this much of its bond (burned, so that the money still adds up)."""
    branch = Branch(net.chain.state)
    worker = tables.WORKERS.get(branch, address("w0"))
    counters = tables.COUNTERS.get(branch)
    assert worker is not None
    assert counters is not None
    tables.WORKERS.put(branch, replace(worker, bond=worker.bond - amount), address("w0"))
    tables.COUNTERS.put(branch, replace(counters, burned=counters.burned + amount))
    net.chain.state.apply(branch)


def bond(net: MemoryNetwork) -> int:
    worker = tables.WORKERS.get(net.chain.state, address("w0"))
    assert worker is not None
    return worker.bond


async def test_joining_registers_with_the_least_bond_and_once_only(network: MemoryNetwork) -> None:
    job_id = await open_tiny_job(network)
    member = membership(network, job_id)
    assert await member.join(network.chain.job(job_id))
    assert not await member.join(network.chain.job(job_id))
    assert bond(network) == network.chain.params.min_worker_bond
    assert len(network.messages_of(key("w0"), JoinJob)) == 1


async def test_a_slashed_bond_is_filled_up_by_what_is_missing(network: MemoryNetwork) -> None:
    job_id = await open_tiny_job(network)
    member = membership(network, job_id)
    await member.join(network.chain.job(job_id))
    network.chain.ok("w0", LeaveJob(job_id=job_id))
    lose_bond(network, 3 * TOKEN // 2)
    assert await member.join(network.chain.job(job_id))
    assert bond(network) == network.chain.params.min_worker_bond
    sent = network.messages_of(key("w0"), RegisterWorker)
    assert [message.bond for message in sent[1:]] == [3 * TOKEN // 2]  # type: ignore[attr-defined]
    assert "the bond was slashed; filling it up" in [entry["event"] for entry in CAPTURED.entries]


async def test_a_larger_bond_that_was_asked_for_is_restored(network: MemoryNetwork) -> None:
    job_id = await open_tiny_job(network)
    least = network.chain.params.min_worker_bond
    member = membership(network, job_id, bond=2 * least)
    await member.join(network.chain.job(job_id))
    network.chain.ok("w0", LeaveJob(job_id=job_id))
    lose_bond(network, least + 1)
    await member.join(network.chain.job(job_id))
    assert bond(network) == 2 * least


async def test_after_too_many_slashes_the_worker_ends_with_the_reason(network: MemoryNetwork) -> None:
    job_id = await open_tiny_job(network)
    member = membership(network, job_id, max_top_ups=1)
    await member.join(network.chain.job(job_id))
    network.chain.ok("w0", LeaveJob(job_id=job_id))
    lose_bond(network, TOKEN)
    assert await member.join(network.chain.job(job_id))
    network.chain.ok("w0", LeaveJob(job_id=job_id))
    lose_bond(network, TOKEN)
    with pytest.raises(CannotJoin, match=r"slashed below .* 2 times"):
        await member.join(network.chain.job(job_id))


async def test_without_money_the_worker_ends_with_the_reason(network: MemoryNetwork) -> None:
    job_id = await open_tiny_job(network)
    with pytest.raises(CannotJoin, match="cannot join job"):
        await membership(network, job_id, bond=10**15).join(network.chain.job(job_id))


async def test_a_worker_whose_bond_was_slashed_before_it_starts_takes_part(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network)
    network.chain.ok("w0", RegisterWorker(bond=network.chain.params.min_worker_bond))
    lose_bond(network, 1)
    async with (
        running(network, "w0", tmp_path / "w0", job_id) as a,
        running(network, "w1", tmp_path / "w1", job_id) as b,
    ):
        await ends(a.task, b.task)
    assert network.chain.job(job_id).settled_rounds == 2
