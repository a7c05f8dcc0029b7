"""The life of data follows the deals on chain, to the block."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from primitives.deals import SEGMENT_BYTES, receipt_digest
from primitives.encoding import encode
from primitives.keys import verify_signature
from storage.errors import Busy, Incomplete, NoSpace, NotProvider, Over, SourceUnavailable, Unknown
from storage.limits import ServiceLimits
from storage.service import StorageService
from storage.store import StorageStore
from storage.terms import DealTerms
from storage.tree import FileTree
from tests.storage.support import CHAIN_ID, OPERATORS, PUBLIC_KEYS, SERVICE_KEYS, Chain, files_on_disk, some_bytes
from tests.storage.support import start_node as start_http_node

OPERATOR = OPERATORS[0]
CONTENT = some_bytes(2 * SEGMENT_BYTES + 100)


def bodies_of(content: bytes) -> list[bytes]:
    tree = FileTree.build(content)
    return [
        encode(tree.segment(index, content[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]))
        for index in range(tree.num_segments)
    ]


async def upload(service: StorageService, deal: DealTerms, content: bytes = CONTENT) -> bytes:
    for index, body in enumerate(bodies_of(content)):
        await service.put_segment(deal.id, index, body)
    return await service.receipt(deal.id)


@pytest.fixture
def chain() -> Chain:
    return Chain()


@pytest.fixture
async def service(tmp_path: Path, chain: Chain) -> AsyncIterator[StorageService]:
    store = StorageStore(tmp_path / "store")
    service = StorageService(store, chain, CHAIN_ID, OPERATOR, SERVICE_KEYS[OPERATOR])
    await service.start()
    yield service
    store.close()


async def test_expiry_is_the_same_block_in_list_info_get_and_on_disk(tmp_path: Path, chain: Chain) -> None:
    node = await start_http_node(tmp_path / "store", chain)
    deal = chain.add(CONTENT, status="active", end_height=50)
    await upload(node.service, deal)
    root, base = deal.root.hex(), f"{node.url}/storage/v1"
    async with aiohttp.ClientSession() as session:

        async def seen() -> tuple[list[int], list[int], set[str]]:
            async with session.get(f"{base}/deals") as response:
                listed = [entry["id"] for entry in (await response.json())["deals"]]
            statuses = []
            for path in (f"deals/{deal.id}", f"files/{root}", f"files/{root}/segments/0", f"files/{root}/bytes"):
                async with session.get(f"{base}/{path}") as response:
                    statuses.append(response.status)
                    if response.status == 410:
                        assert (await response.json())["gone_height"] == 51
            return listed, statuses, files_on_disk(node.path)

        for height in (49, 50):
            chain.current_height = height
            assert await seen() == ([deal.id], [200] * 4, {root})
        chain.current_height = 51  # as the rules of the chain do it: closed in the first block without the deal
        chain.change(deal, status="expired", closed_height=51)
        assert await seen() == ([], [410] * 4, set())
    await node.stop()


async def test_a_height_alone_ends_a_deal_even_if_the_record_still_says_active(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    deal = chain.add(CONTENT, status="active", end_height=50)
    await upload(service, deal)
    chain.current_height = 50
    assert await service.on_height(50) == []
    chain.current_height = 51
    assert await service.on_height(51) == [deal.id]
    assert files_on_disk(tmp_path / "store") == set()
    with pytest.raises(Over) as refusal:
        await service.deal(deal.id)
    assert refusal.value.gone_height == 51


async def test_an_extended_deal_stays(tmp_path: Path, chain: Chain, service: StorageService) -> None:
    deal = chain.add(CONTENT, status="active", end_height=50)
    await upload(service, deal)
    chain.current_height = 50
    await service.on_height(50)
    chain.change(deal, end_height=60)
    chain.current_height = 51
    assert await service.on_height(51) == []
    assert await service.read_segment(deal.root, 0)
    chain.current_height = 61
    assert await service.on_height(61) == [deal.id]


async def test_deleting_one_of_two_deals_keeps_the_data_of_the_other(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    first = chain.add(CONTENT, owner=b"\x01" * 20)
    await upload(service, first)
    second = chain.add(CONTENT, owner=b"\x02" * 20)
    receipt = await service.receipt(second.id)
    digest = receipt_digest(CHAIN_ID, first.id, first.root, first.size)
    assert not verify_signature(PUBLIC_KEYS[OPERATOR], digest, receipt), "a receipt is good for its own deal only"
    chain.delete(first)
    assert await service.on_height(chain.current_height) == [first.id]
    assert [deal.id for deal in await service.list_deals(after=0, limit=10)] == [second.id]
    assert await service.receipt(second.id) == receipt
    with pytest.raises(Over):
        await service.receipt(first.id)
    chain.delete(second)
    with pytest.raises(Over):
        await service.read_segment(second.root, 0)
    assert files_on_disk(tmp_path / "store") == set()


async def test_a_new_deal_keeps_data_that_is_here_without_any_upload(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    first = chain.add(CONTENT)
    await upload(service, first)
    second = chain.add(CONTENT)
    chain.delete(first)
    assert await service.on_height(chain.current_height) == [first.id]
    assert service.is_complete(second)
    assert await service.receipt(second.id)


async def test_no_receipt_while_a_byte_is_missing_or_damaged(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    deal = chain.add(CONTENT)
    bodies = bodies_of(CONTENT)
    with pytest.raises(Incomplete):
        await service.receipt(deal.id)
    for index in (0, 1):
        await service.put_segment(deal.id, index, bodies[index])
    with pytest.raises(Incomplete, match="1 of 3"):
        await service.receipt(deal.id)
    await service.put_segment(deal.id, 2, bodies[2])
    damaged = tmp_path / "store" / "files" / deal.root.hex() / "segments" / "000000" / "000000000"
    damaged.write_bytes(bodies[0][:-1] + bytes([bodies[0][-1] ^ 1]))
    with pytest.raises(Incomplete, match="1 of 3"):
        await service.receipt(deal.id)
    await service.put_segment(deal.id, 0, bodies[0])
    digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
    assert verify_signature(PUBLIC_KEYS[OPERATOR], digest, await service.receipt(deal.id))


async def test_a_deal_with_a_false_size_gets_no_receipt_and_blocks_nobody(
    chain: Chain, service: StorageService
) -> None:
    for size in (0, 5, len(CONTENT) + 1):
        false = chain.add(CONTENT, size=size)
        with pytest.raises(Incomplete):
            await service.receipt(false.id)
    deal = chain.add(CONTENT)
    assert await upload(service, deal)
    assert (await service.file(deal.root)).size == len(CONTENT)


async def test_an_upload_in_progress_is_kept_while_its_deal_is_pending(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    deal = chain.add(CONTENT, status="pending", end_height=20)
    chain.hidden_from_lists.add(deal.id)  # the list lags behind, the deal itself is known
    await service.put_segment(deal.id, 0, bodies_of(CONTENT)[0])
    for height in range(2, 21):
        chain.current_height = height
        assert await service.on_height(height) == []
    assert service.num_held(await service.deal(deal.id)) == 1
    chain.current_height = 21
    chain.change(deal, status="lapsed", closed_height=21)
    assert await service.on_height(21) == [deal.id]
    assert files_on_disk(tmp_path / "store") == set()


async def test_a_segment_that_arrives_as_its_deal_ends_does_not_stay(
    tmp_path: Path, chain: Chain, service: StorageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    deal = chain.add(CONTENT, end_height=20)
    known = await service.deal(deal.id)
    chain.current_height = 21
    await service.on_height(21)
    monkeypatch.setattr(service, "deal", lambda _: asyncio.sleep(0, known))  # asked just before the block
    with pytest.raises(Over):
        await service.put_segment(deal.id, 0, bodies_of(CONTENT)[0])
    assert files_on_disk(tmp_path / "store") == set()


async def test_a_restart_follows_what_happened_meanwhile(tmp_path: Path, chain: Chain, service: StorageService) -> None:
    kept, ended = chain.add(CONTENT), chain.add(b"short lived", end_height=10)
    await upload(service, kept)
    await upload(service, ended, b"short lived")
    service._store.close()
    chain.current_height = 40
    chain.change(ended, status="expired", closed_height=11)
    store = StorageStore(tmp_path / "store")
    again = StorageService(store, chain, CHAIN_ID, OPERATOR, SERVICE_KEYS[OPERATOR])
    await again.start()
    assert files_on_disk(tmp_path / "store") == {kept.root.hex()}
    assert await again.read_segment(kept.root, 2)
    assert await again.receipt(kept.id)
    with pytest.raises(Over) as refusal:
        await again.file(ended.root)
    assert refusal.value.gone_height == 11
    store.close()


async def test_nothing_is_dropped_while_the_chain_cannot_be_asked(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    deal = chain.add(CONTENT, end_height=10)
    await upload(service, deal)
    chain.current_height, chain.unreachable = 11, True
    with pytest.raises(SourceUnavailable):
        await service.on_height(11)
    with pytest.raises(Busy):
        await service.read_segment(deal.root, 0)
    assert files_on_disk(tmp_path / "store") == {deal.root.hex()}
    chain.unreachable = False
    assert await service.on_height(11) == [deal.id]


async def test_nothing_is_dropped_when_the_chain_is_behind_what_was_seen(
    tmp_path: Path, chain: Chain, service: StorageService
) -> None:
    deal = chain.add(CONTENT)
    await upload(service, deal)
    chain.current_height = 30
    await service.on_height(30)
    service._store.close()
    replaying = Chain()  # an emptied node that replays from its first block knows no deal yet
    store = StorageStore(tmp_path / "store")
    again = StorageService(store, replaying, CHAIN_ID, OPERATOR, SERVICE_KEYS[OPERATOR])
    await again.start()
    assert files_on_disk(tmp_path / "store") == {deal.root.hex()}
    replaying.deals = chain.deals
    replaying.current_height = 31
    assert await again.on_height(31) == []
    assert await again.read_segment(deal.root, 0)
    store.close()


async def test_strangers_and_the_past_are_told_apart(chain: Chain, service: StorageService) -> None:
    elsewhere = chain.add(CONTENT, providers=(OPERATORS[1],))
    over = chain.add(CONTENT, status="deleted", closed_height=1)
    with pytest.raises(NotProvider):
        await service.put_segment(elsewhere.id, 0, bodies_of(CONTENT)[0])
    with pytest.raises(Over):
        await service.put_segment(over.id, 0, bodies_of(CONTENT)[0])
    for deal_id in (99, 0, -1, 2**63):
        with pytest.raises(Unknown):
            await service.put_segment(deal_id, 0, bodies_of(CONTENT)[0])
    with pytest.raises(Unknown):
        await service.file(bytes(32))


async def test_a_full_disk_is_said_and_living_deals_go_on(tmp_path: Path, chain: Chain) -> None:
    store = StorageStore(tmp_path / "store", budget_bytes=len(CONTENT))
    service = StorageService(store, chain, CHAIN_ID, OPERATOR, SERVICE_KEYS[OPERATOR])
    deal, second = chain.add(CONTENT), chain.add(b"too much")
    await upload(service, deal)
    with pytest.raises(NoSpace, match="8 more bytes"):
        await upload(service, second, b"too much")
    assert await service.read_segment(deal.root, 0)
    assert service.metrics()["no_space_refused"] == 1
    store.close()


async def test_only_the_hot_tier_is_cached_and_within_bounds(tmp_path: Path, chain: Chain) -> None:
    store = StorageStore(tmp_path / "store")
    limits = ServiceLimits(cache_bytes=SEGMENT_BYTES + 2000)
    service = StorageService(store, chain, CHAIN_ID, OPERATOR, SERVICE_KEYS[OPERATOR], limits=limits)
    hot, temporary = chain.add(CONTENT), chain.add(b"log line", tier="temporary")
    await upload(service, hot)
    await upload(service, temporary, b"log line")
    for _ in range(2):
        await service.read_segment(temporary.root, 0)
    assert (service.metrics()["cache_hits"], service.metrics()["cache_bytes"]) == (0, 0)
    for index in (0, 0, 1, 1, 0):
        await service.read_segment(hot.root, index)
    assert (service.metrics()["cache_hits"], service.metrics()["cache_misses"]) == (2, 3)
    assert 0 < service.metrics()["cache_bytes"] <= limits.cache_bytes
    chain.delete(hot)
    await service.on_height(chain.current_height)
    assert service.metrics()["cache_bytes"] == 0
    store.close()
