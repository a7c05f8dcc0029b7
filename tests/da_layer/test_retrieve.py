"""Blobs read from real servers: what a few faulty nodes can and cannot do."""

import asyncio
from pathlib import Path

import msgspec
import pytest
import reedsolo
from aiohttp import web

from da_layer.client import retrieve
from da_layer.coding import EncodedBlob
from da_layer.errors import (
    BlobPruned,
    BlobUnavailable,
    BlobUnknown,
    InvalidEncoding,
)
from da_layer.wire import ProvenRow
from primitives.encoding import decode
from primitives.merkle import MerkleTree
from tests.da_layer.clients import (
    DATA,
    QUICK_HEDGE_S,
    all_attested,
    busy_once,
    read,
    spread,
    unreachable,
)
from tests.da_layer.network import (
    Handler,
    changing_rows,
    hang,
    network,
    promise_for,
    proven_rows,
    refuse,
    sign,
    wrong_bytes,
    wrong_proof,
)


async def test_reedsolo_alone_restores_a_blob_from_what_nodes_serve(tmp_path: Path) -> None:
    """Two of four nodes are gone; the rows of the others, column by column, through reedsolo and nothing else."""
    async with network(tmp_path) as net:
        data = DATA[:900]
        blob = net.encode(data, k=4, codec="rs8")
        await spread(net, blob)
        await all_attested(net, blob)
        served: dict[int, bytes] = {}
        for member in net.members.members[:2]:
            async with net.session.get(f"{member.url}/da/v1/blobs/{blob.commitment.hex()}/rows") as answer:
                served |= {row.index: row.data for row in decode(await answer.read(), tuple[ProvenRow, ...])}
        k, n, width = blob.header.k, blob.header.n, blob.header.row_size
        lost = [index for index in range(n) if index not in served]
        assert len(served) == 6
        assert lost
        columns = [
            reedsolo.RSCodec(n - k).decode(
                bytes(served.get(index, bytes(width))[column] for index in range(n)), erase_pos=lost
            )[0]
            for column in range(width)
        ]
        rows = [bytes(column[index] for column in columns) for index in range(k)]
        assert b"".join(rows)[: len(data)] == data


@pytest.mark.parametrize("change", [wrong_bytes, wrong_proof])
async def test_one_dead_one_slow_one_lying_node_do_not_matter(tmp_path: Path, change: object) -> None:
    async with network(tmp_path, (1,) * 7) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        net.nodes[1].fault = hang
        net.nodes[2].fault = changing_rows(change)  # type: ignore[arg-type]
        members = unreachable(net.members, net.nodes[0].url)
        assert await retrieve(net.session, blob.header, members, timeout_s=10, hedge_s=QUICK_HEDGE_S) == DATA


@pytest.mark.parametrize("change", [wrong_bytes, wrong_proof])
async def test_two_of_four_nodes_with_wrong_rows_do_not_matter(tmp_path: Path, change: object) -> None:
    """Each of four equal members holds 3k/4 rows, so any two hold enough."""
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        for node in net.nodes[:2]:
            node.fault = changing_rows(change)  # type: ignore[arg-type]
        assert await read(net, blob) == DATA


async def test_three_of_four_nodes_with_wrong_rows_make_it_unavailable_not_wrong(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        for node in net.nodes[:3]:
            node.fault = changing_rows(wrong_bytes)
        with pytest.raises(BlobUnavailable) as caught:
            await read(net, blob)
        assert (caught.value.have, caught.value.need) == (6, 8)
        assert sum("false ones" in answer for answer in caught.value.answers.values()) == 3


async def test_rows_of_another_blob_do_not_mix_in(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob, other = net.encode(DATA), net.encode(DATA[::-1])
        net.store_everywhere(blob)
        foreign = {row.index: row for row in proven_rows(other, range(other.header.n))}
        for node in net.nodes[:2]:
            node.fault = changing_rows(lambda row: foreign[row.index])
        assert await read(net, blob) == DATA


async def test_a_slow_node_is_not_waited_for_when_others_hold_enough(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        net.nodes[0].fault = net.nodes[1].fault = hang
        assert await asyncio.wait_for(read(net, blob, timeout_s=60), 10) == DATA


async def test_a_node_that_is_busy_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        for node in net.nodes:
            node.fault = busy_once()
        assert await read(net, blob) == DATA


async def test_garbage_answers_are_survived(tmp_path: Path) -> None:
    async def garbage(request: web.Request, handler: Handler) -> web.StreamResponse:
        return web.Response(body=b"\xdc\xff\xff garbage")

    async def endless(request: web.Request, handler: Handler) -> web.StreamResponse:
        return web.Response(body=bytes(1 << 20))

    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        net.nodes[0].fault, net.nodes[1].fault = garbage, endless
        assert await read(net, blob) == DATA


async def test_unknown_pruned_and_unavailable_are_told_apart(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        with pytest.raises(BlobUnknown):
            await read(net, blob)
        net.store_everywhere(blob, expiry_height=100)
        for node in net.nodes:
            node.store.prune(101)
        with pytest.raises(BlobPruned) as caught:
            await read(net, blob)
        assert caught.value.height == 101


async def test_two_liars_cannot_make_a_blob_unknown_or_one_make_it_pruned(tmp_path: Path) -> None:
    """Half of the stake says unknown, a quarter pruned, a quarter nothing: too little to believe either."""
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        signed = sign(promise_for(blob, net.members))
        member = net.members.members[0]
        net.node_of(member).store.put(signed, proven_rows(blob, net.assigned(blob)[0]))
        net.node_of(member).store.prune(101)
        net.node_of(net.members.members[1]).fault = refuse
        with pytest.raises(BlobUnavailable) as caught:
            await read(net, blob)
        assert caught.value.have == 0


async def test_a_blob_of_other_parity_is_an_invalid_encoding_for_every_reader(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        good, other = net.encode(DATA), net.encode(DATA[::-1])
        rows = good.rows[:8] + other.rows[8:]
        tree = MerkleTree.of([bytes(row) for row in rows])
        header = msgspec.structs.replace(good.header, rows_root=tree.root)
        blob = EncodedBlob(header, rows, tree)
        await spread(net, blob)
        await all_attested(net, blob)
        for silent in range(4):
            for position, node in enumerate(net.nodes):
                node.fault = refuse if position == silent else None
            with pytest.raises(InvalidEncoding):
                await read(net, blob)


async def test_progress_is_told_in_rows(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        told: list[tuple[int, int]] = []
        await retrieve(
            net.session,
            blob.header,
            net.members,
            timeout_s=10,
            on_progress=lambda done, total: told.append((done, total)),
        )
        assert told == sorted(told)
        assert told[-1] == (8, 8)


async def test_big_rows_are_fetched_in_several_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("da_layer.retrieve._BATCH_BYTES", 1)
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        net.nodes[0].fault = changing_rows(wrong_bytes)
        assert await read(net, blob) == DATA


async def test_retrieval_gives_up_in_time_when_all_nodes_hang(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        for node in net.nodes:
            node.fault = hang
        with pytest.raises(BlobUnavailable) as caught:
            await asyncio.wait_for(read(net, blob, timeout_s=0.3), 10)
        assert (caught.value.have, caught.value.need) == (0, 8)


async def test_corrupt_rows_on_a_nodes_disk_are_replaced_by_others(tmp_path: Path) -> None:
    """FAULTS D13, D23: two of four nodes have lost their disks' content, bit by bit."""
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        for position in (0, 1):
            for rows in (tmp_path / f"node{position}").glob("blobs/*/*/rows"):
                rows.write_bytes(bytes(rows.stat().st_size))
        assert await read(net, blob) == DATA


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://", "no address", "http://127.0.0.1:99999"])
async def test_addresses_that_are_none_are_survived(tmp_path: Path, url: str) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        members = unreachable(net.members, net.nodes[0].url, url=url)
        assert await retrieve(net.session, blob.header, members, timeout_s=10, hedge_s=QUICK_HEDGE_S) == DATA
