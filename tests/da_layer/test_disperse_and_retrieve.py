"""Clients against real servers: blobs spread, read back, and what a few faulty nodes can and cannot do."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
import reedsolo
from aiohttp import web

from da_layer import disperse as disperse_module
from da_layer.client import disperse, retrieve
from da_layer.coding import EncodedBlob
from da_layer.errors import (
    BlobPruned,
    BlobUnavailable,
    BlobUnknown,
    InvalidBlob,
    InvalidEncoding,
    NotAttested,
)
from da_layer.wire import ProvenRow, SignedPromise
from primitives.blobs import Certificate, ServiceSet
from primitives.encoding import decode
from primitives.keys import PrivateKey, verify_signature
from primitives.merkle import MerkleTree
from tests.da_layer.network import (
    Fault,
    Handler,
    Network,
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

DATA = random.Random(7).randbytes(50_001)
QUICK_HEDGE_S = 0.05


async def spread(net: Network, blob: EncodedBlob, *, timeout_s: float = 10) -> Certificate:
    signed = sign(promise_for(blob, net.members))
    return await disperse(
        net.session, blob, signed.promise, signed.signature, signed.public_key, net.members, timeout_s=timeout_s
    )


async def read(net: Network, blob: EncodedBlob, *, timeout_s: float = 10) -> bytes:
    return await retrieve(net.session, blob.header, net.members, timeout_s=timeout_s, hedge_s=QUICK_HEDGE_S)


async def all_attested(net: Network, blob: EncodedBlob) -> None:
    """Wait for the members that get their rows in the background."""
    while stragglers := list(disperse_module._stragglers):
        await asyncio.gather(*stragglers)
    assert [net.node_of(m).store.status(blob.commitment) is not None for m in net.members.members] == [True] * 4


@pytest.mark.parametrize("codec", ["rs8", "isal"])
async def test_a_blob_comes_back_as_it_was(tmp_path: Path, codec: str) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA, codec=codec)
        certificate = await spread(net, blob)
        assert await read(net, blob) == DATA
        operators = [word.operator for word in certificate.attestations]
        assert operators == sorted(operators)
        assert len(operators) >= 3
        keys = {member.operator: member.service_key for member in net.members.members}
        digest = certificate.promise.attestation_digest
        assert all(verify_signature(keys[w.operator], digest, w.signature) for w in certificate.attestations)


async def test_members_beyond_two_thirds_get_their_rows_in_the_background(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        await spread(net, blob)
        await all_attested(net, blob)


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


async def test_dispersal_survives_one_dead_node_of_four(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.nodes[3].fault = hang
        certificate = await spread(net, blob)
        assert len(certificate.attestations) == 3


async def test_dispersal_without_two_thirds_names_who_refused_and_why(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.nodes[0].fault = net.nodes[1].fault = refuse
        with pytest.raises(NotAttested) as caught:
            await spread(net, blob)
        assert caught.value.total == 4
        assert caught.value.refusals
        assert all(reason == "no: not today?[31m" for reason in caught.value.refusals.values())
        assert all(name.startswith("outer1") and "127.0.0.1" in name for name in caught.value.refusals)


async def test_dispersal_gives_up_in_time_when_nodes_hang(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.nodes[0].fault = net.nodes[1].fault = hang
        with pytest.raises(NotAttested, match="no answer within"):
            await asyncio.wait_for(spread(net, blob, timeout_s=0.6), 10)


async def test_dispersal_tries_again_where_a_node_was_busy(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        for node in net.nodes:
            node.fault = busy_once()
        assert len((await spread(net, blob)).attestations) >= 3


async def test_attestations_are_checked_before_they_count(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        wrong_keys = tuple(
            msgspec.structs.replace(member, service_key=PrivateKey.from_seed("other").public_key)
            for member in net.members.members
        )
        signed = sign(promise_for(blob, net.members))
        with pytest.raises(NotAttested, match="signature of its attestation is wrong"):
            await disperse(
                net.session,
                blob,
                signed.promise,
                signed.signature,
                signed.public_key,
                ServiceSet(1, wrong_keys),
                timeout_s=10,
            )


async def test_members_without_a_service_weigh_and_cannot_sign(tmp_path: Path) -> None:
    async with network(tmp_path, (1, 1, 2)) as net:
        heavy = max(net.members.members, key=lambda member: member.stake)
        members = unreachable(net.members, heavy.url, url="")
        blob = net.encode(DATA, k=4)
        signed = sign(promise_for(blob, net.members))
        with pytest.raises(NotAttested, match="registered no service"):
            await disperse(
                net.session, blob, signed.promise, signed.signature, signed.public_key, members, timeout_s=10
            )


async def test_promise_blob_and_members_must_fit(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob, other = net.encode(DATA), net.encode(DATA, k=4)
        good = promise_for(blob, net.members)
        for promise in (promise_for(other, net.members), msgspec.structs.replace(good, set_version=2)):
            signed = sign(promise)
            with pytest.raises(InvalidBlob):
                await disperse_signed(net, blob, signed)
        odd = msgspec.structs.replace(blob.header, n=25)
        with pytest.raises(InvalidBlob):
            await retrieve(net.session, odd, net.members, timeout_s=1)


async def disperse_signed(net: Network, blob: EncodedBlob, signed: SignedPromise) -> Certificate:
    return await disperse(
        net.session, blob, signed.promise, signed.signature, signed.public_key, net.members, timeout_s=5
    )


def unreachable(members: ServiceSet, gone: str, *, url: str = "http://127.0.0.1:9") -> ServiceSet:
    """The same members, but one of them listens where nobody is."""
    changed = tuple(
        msgspec.structs.replace(member, url=url) if member.url == gone else member for member in members.members
    )
    return ServiceSet(members.version, changed)


def busy_once() -> Fault:
    asked: list[str] = []

    async def fault(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) == 1:
            return web.json_response({"error": "busy", "detail": "later"}, status=503)
        return await handler(request)

    return fault


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


async def test_nothing_runs_on_after_a_failed_dispersal(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.nodes[0].fault = net.nodes[1].fault = refuse
        net.nodes[2].fault = hang
        with pytest.raises(NotAttested):
            await spread(net, blob)
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        assert not [name for name in names if name in ("_offer", "_grace")]


async def test_a_closed_session_is_an_error_not_a_crash(tmp_path: Path) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        await net.session.close()
        with pytest.raises(NotAttested, match="session is closed"):
            await spread(net, blob)
        with pytest.raises(BlobUnavailable, match="session is closed"):
            await read(net, blob)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://", "no address", "http://127.0.0.1:99999"])
async def test_addresses_that_are_none_are_survived(tmp_path: Path, url: str) -> None:
    async with network(tmp_path) as net:
        blob = net.encode(DATA)
        net.store_everywhere(blob)
        members = unreachable(net.members, net.nodes[0].url, url=url)
        assert await retrieve(net.session, blob.header, members, timeout_s=10, hedge_s=QUICK_HEDGE_S) == DATA
