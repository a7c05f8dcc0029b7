"""Upload and download over real sockets: replicas, resume, and providers that fail in every way."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from primitives.deals import SEGMENT_BYTES, receipt_digest
from primitives.encoding import encode
from primitives.keys import PrivateKey, verify_signature
from storage.client import StorageClient
from storage.errors import DownloadFailed, ProviderError, UnusableFile, UploadFailed
from storage.terms import DealTerms
from storage.tree import FileTree
from tests.storage.support import (
    CHAIN_ID,
    OPERATORS,
    PUBLIC_KEYS,
    QUICK,
    Chain,
    Node,
    names_in,
    running_nodes,
    some_bytes,
    start_node,
    urls_of,
)

CONTENT = some_bytes(7 * SEGMENT_BYTES + 7)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DEAD_URL = "http://127.0.0.1:1"


@pytest.fixture
async def client() -> AsyncIterator[StorageClient]:
    async with aiohttp.ClientSession() as session:
        yield StorageClient(session, timeout_s=20, retry=QUICK)


def set_when_half_done(event: asyncio.Event) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done > total / 2:
            event.set()

    return report


async def upload(
    client: StorageClient, content: bytes | Path, deal: DealTerms, nodes: list[Node], **options: Any
) -> list[tuple[bytes, bytes]]:
    given: dict[str, Any] = {"chain_id": CHAIN_ID, "service_keys": PUBLIC_KEYS} | options
    return await client.upload(content, deal, urls_of(nodes), **given)


@pytest.mark.parametrize("size", [0, 1, 4096, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 7])
async def test_what_is_uploaded_comes_back_from_every_provider(
    tmp_path: Path, client: StorageClient, size: int
) -> None:
    chain, content = Chain(), some_bytes(size)
    deal = chain.add(content)
    async with running_nodes(tmp_path, chain) as nodes:
        done: list[tuple[int, int]] = []
        receipts = await upload(client, content, deal, nodes, on_progress=lambda *pair: done.append(pair))
        assert [operator for operator, _ in receipts] == OPERATORS
        digest = receipt_digest(CHAIN_ID, deal.id, deal.root, size)
        assert all(verify_signature(PUBLIC_KEYS[operator], digest, receipt) for operator, receipt in receipts)
        assert done[-1] == (3 * size, 3 * size)
        for number, node in enumerate(nodes):
            target = tmp_path / f"back{number}"
            await client.download(deal.root, size, [node.url], target)
            assert target.read_bytes() == content
            assert names_in(tmp_path, "back*.part*") == []


async def test_a_provider_that_dies_half_way_does_not_stop_the_others_and_gets_only_the_rest_later(
    tmp_path: Path, client: StorageClient
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    dying: list[str] = []

    async def die_after_three(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "PUT":
            dying.append(request.path)
        if len(dying) > 3 and request.transport is not None:
            request.transport.abort()
        return await handler(request) if len(dying) <= 3 else web.Response(status=500)

    good = [await start_node(tmp_path / f"good{i}", chain, OPERATORS[i]) for i in (0, 1)]
    bad = await start_node(tmp_path / "bad", chain, OPERATORS[2], middlewares=[die_after_three])
    with pytest.raises(UploadFailed) as failure:
        await upload(client, CONTENT, deal, [*good, bad])
    assert [operator for operator, _ in failure.value.receipts] == OPERATORS[:2]
    assert list(failure.value.failures) == [OPERATORS[2]]
    assert bad.url in str(failure.value)
    await bad.stop()

    bad = await start_node(tmp_path / "bad", chain, OPERATORS[2])
    held = bad.service.num_held(deal)
    assert held == 3
    sent_before = [len(node.puts()) for node in good]
    done: list[tuple[int, int]] = []
    receipts = await upload(client, CONTENT, deal, [*good, bad], on_progress=lambda *pair: done.append(pair))
    assert len(receipts) == 3
    assert [len(node.puts()) for node in good] == sent_before
    assert len(bad.puts()) == 8 - held
    sent_bytes = sum(length for method, _, length in bad.received if method == "PUT")
    assert len(CONTENT) - held * SEGMENT_BYTES <= sent_bytes < len(CONTENT) - held * SEGMENT_BYTES + 5 * 300
    assert done[0][0] > 0
    assert done[-1] == (3 * len(CONTENT), 3 * len(CONTENT))
    await asyncio.gather(*(node.stop() for node in [*good, bad]))


async def test_an_upload_that_is_interrupted_goes_on_where_it_was(tmp_path: Path, client: StorageClient) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    (tmp_path / "file").write_bytes(CONTENT)
    half = asyncio.Event()
    async with running_nodes(tmp_path, chain) as nodes:
        first = asyncio.create_task(
            upload(client, tmp_path / "file", deal, nodes, on_progress=set_when_half_done(half))
        )
        await half.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        while any(node.service.metrics()["uploads_running"] for node in nodes):
            await asyncio.sleep(0)
    async with running_nodes(tmp_path, chain) as nodes:
        missing = [8 - node.service.num_held(deal) for node in nodes]
        assert 0 < sum(missing) < 24
        assert len(await upload(client, tmp_path / "file", deal, nodes)) == 3
        assert [len(node.puts()) for node in nodes] == missing
        assert len(await upload(client, tmp_path / "file", deal, nodes)) == 3
        assert [len(node.puts()) for node in nodes] == missing


async def test_a_segment_that_rots_before_the_receipt_is_sent_again(tmp_path: Path, client: StorageClient) -> None:
    chain = Chain()
    deal = chain.add(CONTENT, providers=(OPERATORS[0],))
    node = await start_node(tmp_path / "node", chain)
    await upload(client, CONTENT, deal, [node])
    again = chain.add(CONTENT, providers=(OPERATORS[0],))
    rotten = node.path / "files" / deal.root.hex() / "segments" / "000000" / "000000004"
    rotten.write_bytes(b"rot")
    before = len(node.puts())
    assert await upload(client, CONTENT, again, [node])
    assert len(node.puts()) == before + 1
    await node.stop()


async def test_a_deal_the_provider_hears_of_a_moment_later_is_tried_again(
    tmp_path: Path, client: StorageClient
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT, providers=(OPERATORS[0],))
    del chain.deals[deal.id]
    asked: list[str] = []

    async def learn_on_second_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(request.path)
        if len(asked) == 2:
            chain.deals[deal.id] = deal
        return await handler(request)

    node = await start_node(tmp_path / "node", chain, middlewares=[learn_on_second_request])
    assert len(await upload(client, CONTENT, deal, [node])) == 1
    await node.stop()


async def test_a_file_that_is_not_the_deals_is_refused_before_anything_is_sent(
    tmp_path: Path, client: StorageClient
) -> None:
    deal = Chain().add(CONTENT)
    with pytest.raises(UnusableFile, match="not the file of deal 1"):
        await client.upload(CONTENT + b"x", deal, {}, chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS)
    with pytest.raises(UnusableFile):
        await client.upload(tmp_path / "missing", deal, {}, chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS)


async def test_receipts_that_are_not_signed_by_the_registered_key_count_for_nothing(
    tmp_path: Path, client: StorageClient
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    keys = PUBLIC_KEYS | {OPERATORS[0]: PrivateKey.from_seed("another").public_key, OPERATORS[1]: b""}
    async with running_nodes(tmp_path, chain) as nodes:
        with pytest.raises(UploadFailed, match="not signed by its registered service key") as failure:
            await upload(client, CONTENT, deal, nodes, service_keys=keys)
        assert [operator for operator, _ in failure.value.receipts] == [OPERATORS[2]]
        with pytest.raises(UploadFailed):
            await upload(client, CONTENT, deal, nodes, chain_id="another-chain")


async def test_a_provider_without_an_address_or_with_a_strange_one_is_named(
    tmp_path: Path, client: StorageClient
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    node = await start_node(tmp_path / "node", chain)
    urls = {OPERATORS[0]: node.url, OPERATORS[1]: "ftp://example"}
    with pytest.raises(UploadFailed) as failure:
        await client.upload(CONTENT, deal, urls, chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS)
    assert "not an http address" in failure.value.failures[OPERATORS[1]]
    assert "not registered an address" in failure.value.failures[OPERATORS[2]]
    assert len(failure.value.receipts) == 1
    await node.stop()


@pytest.mark.parametrize("url", ["http://a..b:80", "http://.:80", f"http://{'a' * 64}.com:80"])
async def test_a_provider_whose_address_is_no_host_name_does_not_keep_a_good_one_from_delivering(
    tmp_path: Path, client: StorageClient, url: str
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    node = await start_node(tmp_path / "node", chain)
    urls = {OPERATORS[0]: node.url, OPERATORS[1]: url}
    with pytest.raises(UploadFailed) as failure:
        await client.upload(CONTENT, deal, urls, chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS)
    assert "not an http address" in failure.value.failures[OPERATORS[1]]
    assert await client.read(deal.root, deal.size, [url, node.url], 0, deal.size) == CONTENT
    await node.stop()


class Misbehaving:
    """Answers requests for segments wrongly, in one of several ways."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.num_asked = 0
        self.released = asyncio.Event()

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method != "GET" or "/segments/" not in request.path:
            return await handler(request)
        self.num_asked += 1
        answer = await handler(request)
        assert isinstance(answer, web.Response)
        body = answer.body
        assert isinstance(body, bytes)
        if self.way == "stalls":
            await self.released.wait()
        if self.way == "cuts":
            cut = web.StreamResponse(headers={"Content-Length": str(len(body))})
            await cut.prepare(request)
            await cut.write(body[: len(body) // 2])
            assert request.transport is not None
            request.transport.close()
            return cut
        if self.way == "answers with another segment":
            return web.Response(body=_another_segment(request))
        bodies = {
            "short": body[:-10],
            "empty": b"",
            "corrupt": body[:-1] + bytes([body[-1] ^ 1]),
            "huge": body * 4,
        }
        if self.way == "redirects":
            return web.Response(status=302, headers={"Location": DEAD_URL})
        if self.way == "fails":
            return web.Response(status=500, text="<html>oops</html>")
        return web.Response(body=bodies.get(self.way, body))


def _another_segment(request: web.Request) -> bytes:
    index = (int(request.path.rsplit("/", 1)[1]) + 1) % 7
    data = CONTENT[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]
    return encode(FileTree.build(CONTENT).segment(index, data))


WAYS = ["short", "empty", "corrupt", "huge", "cuts", "answers with another segment", "redirects", "fails", "stalls"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_provider_that_misbehaves_does_not_keep_a_good_one_from_delivering(
    tmp_path: Path, client: StorageClient, way: str
) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    wrong = Misbehaving(way)
    bad = await start_node(tmp_path / "bad", chain, OPERATORS[0], middlewares=[wrong])
    good = await start_node(tmp_path / "good", chain, OPERATORS[1])
    with pytest.raises(UploadFailed):
        await upload(client, CONTENT, deal, [bad, good])  # the third provider has no address
    if way == "stalls":
        client = StorageClient(client.session, timeout_s=0.5, retry=QUICK)
    target = tmp_path / "back"
    await client.download(deal.root, deal.size, [bad.url, DEAD_URL, good.url], target)
    assert target.read_bytes() == CONTENT
    assert 0 < wrong.num_asked <= 4, "after its first failures it is asked last"

    with pytest.raises(DownloadFailed) as failure:
        await client.download(deal.root, deal.size, [bad.url], tmp_path / "never")
    assert bad.url in str(failure.value)
    assert not (tmp_path / "never").exists()
    wrong.released.set()
    await asyncio.gather(bad.stop(), good.stop())


async def test_a_download_that_is_interrupted_fetches_only_the_rest(tmp_path: Path, client: StorageClient) -> None:
    chain = Chain()
    deal = chain.add(CONTENT, providers=(OPERATORS[0],))
    node = await start_node(tmp_path / "node", chain)
    await upload(client, CONTENT, deal, [node])
    target, half = tmp_path / "back", asyncio.Event()
    task = asyncio.create_task(
        client.download(
            deal.root,
            deal.size,
            [node.url],
            target,
            set_when_half_done(half),
        )
    )
    await half.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names_in(tmp_path, "back*") == ["back.part", "back.part.journal"]

    await node.stop()
    node = await start_node(tmp_path / "node", chain)
    progress: list[tuple[int, int]] = []
    await client.download(deal.root, deal.size, [node.url], target, lambda *pair: progress.append(pair))
    assert target.read_bytes() == CONTENT
    assert progress[0][0] > len(CONTENT) / 2
    assert progress[-1] == (deal.size, deal.size)
    assert 0 < node.service.metrics()["bytes_served"] < len(CONTENT) / 2
    assert names_in(tmp_path, "back*") == ["back"]
    await node.stop()


async def test_each_provider_may_hold_another_part(tmp_path: Path, client: StorageClient) -> None:
    chain = Chain()
    deal = chain.add(CONTENT)
    async with running_nodes(tmp_path, chain) as nodes:
        await upload(client, CONTENT, deal, nodes)
        for number, node in enumerate(nodes):
            for index in range(8):
                if index % 3 != number:
                    (node.path / "files" / deal.root.hex() / "segments" / "000000" / f"{index:09d}").unlink()
        await client.download(deal.root, deal.size, [node.url for node in nodes], tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 1), (5, SEGMENT_BYTES), (SEGMENT_BYTES - 1, 2), (0, 10**9), (len(CONTENT) - 1, 5), (len(CONTENT), 5)],
)
async def test_any_range_can_be_read(tmp_path: Path, client: StorageClient, offset: int, length: int) -> None:
    chain = Chain()
    deal = chain.add(CONTENT, providers=(OPERATORS[0],))
    node = await start_node(tmp_path / "node", chain)
    await upload(client, CONTENT, deal, [node])
    served = node.service.metrics()["segments_served"]
    data = await client.read(deal.root, deal.size, [DEAD_URL, node.url], offset, length)
    assert data == CONTENT[offset : offset + length]
    assert node.service.metrics()["segments_served"] - served <= len(data) // SEGMENT_BYTES + 2
    await node.stop()


async def test_a_file_that_is_gone_is_said_to_be_gone(tmp_path: Path, client: StorageClient) -> None:
    chain = Chain()
    deal = chain.add(CONTENT, providers=(OPERATORS[0],))
    node = await start_node(tmp_path / "node", chain)
    await upload(client, CONTENT, deal, [node])
    assert (await client.file_info(node.url, deal.root)).complete
    chain.delete(deal)
    with pytest.raises(ProviderError) as error:
        await client.file_info(node.url, deal.root)
    assert error.value.code == "gone"
    with pytest.raises(DownloadFailed, match="gone since height 2"):
        await client.download(deal.root, deal.size, [node.url], tmp_path / "back")
    await node.stop()


async def test_questions_that_make_no_sense_are_refused(tmp_path: Path, client: StorageClient) -> None:
    with pytest.raises(ValueError, match="offset"):
        await client.read(bytes(32), 5, [DEAD_URL], -1, 2)
    with pytest.raises(ValueError, match="root"):
        await client.download(b"short", 5, [DEAD_URL], tmp_path / "x")
    with pytest.raises(DownloadFailed, match="no provider"):
        await client.download(bytes(32), 5, [], tmp_path / "x")
    with pytest.raises(DownloadFailed, match="empty file"):
        await client.download(bytes(32), 0, [DEAD_URL], tmp_path / "x")
