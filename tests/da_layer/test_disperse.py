"""Blobs spread over real servers: who attests, what is checked, what a failure says."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from da_layer.client import disperse, retrieve
from da_layer.errors import (
    BlobUnavailable,
    InvalidBlob,
    NotAttested,
)
from primitives.blobs import ServiceSet
from primitives.keys import PrivateKey, verify_signature
from tests.da_layer.clients import (
    DATA,
    all_attested,
    busy_once,
    disperse_signed,
    read,
    spread,
    unreachable,
)
from tests.da_layer.network import (
    hang,
    network,
    promise_for,
    refuse,
    sign,
)


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
