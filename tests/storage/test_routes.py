"""The service over HTTP: hostile requests get a clear refusal and change nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from primitives.deals import SEGMENT_BYTES
from primitives.encoding import decode, encode
from storage.limits import ServiceLimits
from storage.terms import DealTerms
from storage.tree import MAX_BODY_BYTES, FileTree, Segment, verify_segment
from tests.storage.support import Chain, Node, files_on_disk, names_in, some_bytes, start_node

CONTENT = some_bytes(2 * SEGMENT_BYTES + 100)
TREE = FileTree.build(CONTENT)
BODIES = [
    encode(TREE.segment(i, CONTENT[i * SEGMENT_BYTES : (i + 1) * SEGMENT_BYTES])) for i in range(TREE.num_segments)
]


@pytest.fixture
def chain() -> Chain:
    return Chain()


@pytest.fixture
async def node(tmp_path: Path, chain: Chain) -> AsyncIterator[Node]:
    limits = ServiceLimits(max_uploads=1, body_timeout_s=1.0)
    node = await start_node(tmp_path / "store", chain, limits=limits)
    yield node
    await node.stop()


@pytest.fixture
async def session(node: Node) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"{node.url}/storage/v1/") as session:
        yield session


async def put_all(session: aiohttp.ClientSession, deal: DealTerms) -> None:
    for index, body in enumerate(BODIES):
        async with session.put(f"deals/{deal.id}/segments/{index}", data=body) as response:
            assert (response.status, await response.json()) == (200, {"stored": True})


async def refusal(session: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, str]:
    async with session.request(method, path, **options) as response:
        answer = await response.json()
        assert answer["message"]
        return response.status, answer["error"]


async def test_segments_come_with_a_proof_that_verifies(session: aiohttp.ClientSession, chain: Chain) -> None:
    await put_all(session, chain.add(CONTENT))
    for index in range(TREE.num_segments):
        async with session.get(f"files/{TREE.root.hex()}/segments/{index}") as response:
            assert verify_segment(TREE.root, TREE.size, index, decode(await response.read(), Segment))


async def test_info_and_lists_say_what_is_held(session: aiohttp.ClientSession, chain: Chain) -> None:
    deal = chain.add(CONTENT, tier="temporary", series="job/1/logs")
    async with session.put(f"deals/{deal.id}/segments/1", data=BODIES[1]) as response:
        assert response.status == 200
    async with session.get(f"files/{deal.root.hex()}") as response:
        info = await response.json()
    assert (info["size"], info["num_segments"], info["num_held"], info["held"]) == (deal.size, 3, 1, "02")
    assert info["complete"] is False
    async with session.get(f"deals/{deal.id}") as response:
        described = await response.json()
    assert (described["tier"], described["series"], described["held"]) == ("temporary", "job/1/logs", "02")


async def test_lists_are_paged_without_gaps_or_repeats(session: aiohttp.ClientSession, chain: Chain) -> None:
    for number in range(7):
        chain.add(some_bytes(10, seed=number))
    chain.current_height += 1
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        async with session.get("deals", params={"after": after, "limit": 3}) as response:
            page = await response.json()
        seen += [deal["id"] for deal in page["deals"]]
        after = page["next"]
    assert seen == [1, 2, 3, 4, 5, 6, 7]


async def test_wrong_bodies_are_refused_and_nothing_is_kept(
    node: Node, session: aiohttp.ClientSession, chain: Chain
) -> None:
    deal = chain.add(CONTENT)
    path = f"deals/{deal.id}/segments/0"
    assert await refusal(session, "PUT", path, data=BODIES[1]) == (422, "wrong_bytes")
    assert await refusal(session, "PUT", path, data=b"garbage") == (400, "bad_request")
    assert await refusal(session, "PUT", path, data=b"") == (400, "bad_request")
    assert await refusal(session, "PUT", path, data=BODIES[0] + b"\0") == (400, "bad_request")
    assert await refusal(session, "PUT", path, data=bytes(MAX_BODY_BYTES + 1)) == (413, "too_large")
    assert await refusal(session, "PUT", f"deals/{deal.id}/segments/3", data=BODIES[0]) == (400, "bad_request")

    async def unsized() -> AsyncIterator[bytes]:
        yield BODIES[0]

    assert await refusal(session, "PUT", path, data=unsized()) == (411, "length_needed")
    assert files_on_disk(node.path) == set()
    assert node.service.metrics()["wrong_segments_refused"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "files/..%2F..%2Fetc%2Fpasswd",
        "files/%2Fetc%2Fpasswd",
        "files/" + "A" * 64,
        "files/" + "a" * 63,
        "files/" + "a" * 64 + "%00",
        f"files/{'a' * 64}/segments/..%2Fhead",
        f"files/{'a' * 64}/segments/-1",
        f"files/{'a' * 64}/segments/{'9' * 40}",
        f"files/{'a' * 64}/segments/%D9%A1",
        "deals/one",
        "deals/0x1",
        "deals/1.0",
        "deals?after=-1",
        "deals?limit=many",
    ],
)
async def test_names_from_outside_never_become_paths(
    node: Node, session: aiohttp.ClientSession, tmp_path: Path, path: str
) -> None:
    url = URL(f"{node.url}/storage/v1/{path}", encoded=True)
    async with session.get(url) as response:
        assert response.status == 400
    assert names_in(tmp_path) == ["store"]


async def test_unknown_and_gone_are_told_apart(session: aiohttp.ClientSession, chain: Chain) -> None:
    deal = chain.add(CONTENT)
    await put_all(session, deal)
    assert await refusal(session, "GET", "deals/77") == (404, "unknown")
    assert await refusal(session, "GET", f"files/{'a' * 64}") == (404, "unknown")
    assert await refusal(session, "GET", f"files/{deal.root.hex()}/segments/9") == (404, "unknown")
    chain.delete(deal)
    assert await refusal(session, "GET", f"files/{deal.root.hex()}/segments/0") == (410, "gone")
    assert await refusal(session, "PUT", f"deals/{deal.id}/segments/0", data=BODIES[0]) == (410, "gone")
    assert await refusal(session, "POST", f"deals/{deal.id}/receipt") == (410, "gone")


async def test_a_deal_of_other_providers_is_refused(session: aiohttp.ClientSession, chain: Chain) -> None:
    deal = chain.add(CONTENT, providers=(b"\x09" * 20,))
    assert await refusal(session, "PUT", f"deals/{deal.id}/segments/0", data=BODIES[0]) == (403, "not_provider")
    assert await refusal(session, "POST", f"deals/{deal.id}/receipt") == (403, "not_provider")


async def test_a_busy_node_says_when_to_come_back_and_a_slow_sender_loses_its_place(
    node: Node, session: aiohttp.ClientSession, chain: Chain
) -> None:
    deal = chain.add(CONTENT)
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(
        f"PUT /storage/v1/deals/{deal.id}/segments/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".encode()
    )
    await writer.drain()
    while node.service.metrics()["uploads_running"] == 0:
        await asyncio.sleep(0)
    async with session.put(f"deals/{deal.id}/segments/0", data=BODIES[0]) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert b"408" in await reader.readline()
    writer.close()
    await put_all(session, deal)
    assert node.service.metrics()["busy_refused"] == 1


async def test_a_sender_that_hangs_up_half_way_leaves_nothing(
    node: Node, session: aiohttp.ClientSession, chain: Chain
) -> None:
    deal = chain.add(CONTENT)
    _, writer = await asyncio.open_connection("127.0.0.1", node.port)
    head = f"PUT /storage/v1/deals/{deal.id}/segments/0 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODIES[0])}\r\n\r\n"
    writer.write(head.encode() + BODIES[0][:1000])
    await writer.drain()
    while node.service.metrics()["uploads_running"] == 0:
        await asyncio.sleep(0)
    writer.close()
    while node.service.metrics()["uploads_running"]:
        await asyncio.sleep(0)
    assert files_on_disk(node.path) == set()
    await put_all(session, deal)


@pytest.mark.parametrize(
    ("header", "status", "wanted"),
    [
        (None, 200, CONTENT),
        ("bytes=0-0", 206, CONTENT[:1]),
        (f"bytes={SEGMENT_BYTES - 2}-{SEGMENT_BYTES + 1}", 206, CONTENT[SEGMENT_BYTES - 2 : SEGMENT_BYTES + 2]),
        ("bytes=-5", 206, CONTENT[-5:]),
        (f"bytes=10-{10**17}", 206, CONTENT[10:]),
        ("bytes=100-", 206, CONTENT[100:]),
        (f"bytes={len(CONTENT)}-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=5-2", 200, CONTENT),
        ("bytes=0-1,3-4", 200, CONTENT),
        ("lines=1-2", 200, CONTENT),
    ],
)
async def test_ranges_of_the_plain_file(
    session: aiohttp.ClientSession, chain: Chain, header: str | None, status: int, wanted: bytes
) -> None:
    await put_all(session, chain.add(CONTENT))
    headers = {"Range": header} if header else {}
    async with session.get(f"files/{TREE.root.hex()}/bytes", headers=headers) as response:
        assert (response.status, await response.read()) == (status, wanted)
        if status == 206:
            assert response.headers["Content-Range"].endswith(f"/{TREE.size}")


async def test_an_empty_file_is_served_as_no_bytes(session: aiohttp.ClientSession, chain: Chain) -> None:
    deal = chain.add(b"")
    async with session.post(f"deals/{deal.id}/receipt") as response:
        assert response.status == 200
    async with session.get(f"files/{deal.root.hex()}") as response:
        assert (await response.json())["complete"] is True
    async with session.get(f"files/{deal.root.hex()}/bytes") as response:
        assert (response.status, await response.read()) == (200, b"")


async def test_a_plain_read_that_meets_a_damaged_segment_is_cut_not_completed(
    node: Node, session: aiohttp.ClientSession, chain: Chain
) -> None:
    deal = chain.add(CONTENT, tier="temporary")
    await put_all(session, deal)
    damaged = node.path / "files" / deal.root.hex() / "segments" / "000000" / "000000001"
    damaged.write_bytes(b"rot")
    with pytest.raises(aiohttp.ClientError):
        async with session.get(f"files/{deal.root.hex()}/bytes") as response:
            await response.read()
    assert await refusal(session, "GET", f"files/{deal.root.hex()}/segments/1") == (404, "unknown")
