"""Four nodes in processes of their own, two of which have only wrong rows: any two honest ones are enough."""

import random
from pathlib import Path

import pytest
from aiohttp import ClientSession

from da_layer import disperse as disperse_module
from da_layer.client import disperse, retrieve
from da_layer.coding import EncodedBlob, encode_blob
from da_layer.errors import BlobUnavailable
from tests.da_layer.network import promise_for, sign
from tests.da_layer.processes import NodeProcesses, node_processes

DATA = random.Random(5).randbytes(300_001)
K, N = 8, 24
ROWS_EACH = 3 * K // 4


async def spread(session: ClientSession, net: NodeProcesses) -> EncodedBlob:
    """A blob of which all four have their rows on disk."""
    blob = encode_blob(DATA, k=K, n=N)
    signed = sign(promise_for(blob, net.members))
    await disperse(session, blob, signed.promise, signed.signature, signed.public_key, net.members, timeout_s=30)
    for straggler in list(disperse_module._stragglers):
        await straggler
    return blob


def damage(path: Path, *, cut: bool) -> None:
    """Every row file of a node: cut in the middle, or one bit of each row flipped."""
    files = list(path.glob("blobs/*/*/rows"))
    assert files
    for file in files:
        content = bytearray(file.read_bytes())
        step = len(content) // ROWS_EACH
        for position in range(step // 2, len(content), step):
            content[position] ^= 1
        file.write_bytes(content[: step // 2] if cut else content)


async def test_two_nodes_whose_disks_rotted_find_out_themselves_and_the_others_are_enough(tmp_path: Path) -> None:
    with node_processes(tmp_path) as net:
        async with ClientSession() as session:
            blob = await spread(session, net)
            damage(net.nodes[0].path, cut=True)
            damage(net.nodes[1].path, cut=False)
            assert await retrieve(session, blob.header, net.members, timeout_s=30) == DATA
        net.end()
    metrics = [node.last_words["metrics"] for node in net.nodes]
    assert [counted["promises_stored"] for counted in metrics] == [1] * 4
    assert [counted["rows_served"] for counted in metrics[:2]] == [0, 0]
    assert all(counted["rows_damaged"] > 0 for counted in metrics[:2])
    assert [counted["rows_damaged"] for counted in metrics[2:]] == [0, 0]
    assert sum(counted["rows_served"] for counted in metrics[2:]) >= K


async def test_two_nodes_that_serve_wrong_rows_are_seen_through_and_the_others_are_enough(tmp_path: Path) -> None:
    with node_processes(tmp_path, liars=(0, 1)) as net:
        async with ClientSession() as session:
            blob = await spread(session, net)
            assert await retrieve(session, blob.header, net.members, timeout_s=30) == DATA
        net.end()
    assert sum(node.last_words["metrics"]["rows_served"] for node in net.nodes[2:]) >= K


async def test_three_nodes_that_serve_wrong_rows_make_a_blob_unavailable_and_are_named(tmp_path: Path) -> None:
    with node_processes(tmp_path, liars=(0, 1, 2)) as net:
        async with ClientSession() as session:
            blob = await spread(session, net)
            with pytest.raises(BlobUnavailable) as caught:
                await retrieve(session, blob.header, net.members, timeout_s=30)
    assert (caught.value.have, caught.value.need) == (ROWS_EACH, K)
    liars = {name for name, answer in caught.value.answers.items() if "false ones" in answer}
    assert len(liars) == 3
    assert all(any(node.member.url in name for name in liars) for node in net.nodes[:3])
