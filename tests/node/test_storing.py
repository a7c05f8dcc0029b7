"""Storing a file never pays twice, whatever breaks in between. The transfers themselves are tested in tests/storage."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from abci_app.messages import ActivateDeal, CreateDeal, DeleteDeal, Message
from abci_app.records import Deal
from node import storing
from node.errors import NodeUnreachable
from node.storing import DealJournal, JournalEntry, StoringFailed, fetch_file, find_deal, provider_services, store_file
from primitives.deals import receipt_digest
from primitives.hashing import sha256
from storage.errors import DownloadFailed, UploadFailed
from storage.terms import DealTerms
from tests.abci_app.rules.chain import CHAIN_ID, VALIDATORS, address, key
from tests.node.memory_network import MemoryClient, MemoryNetwork, network

__all__ = ["network"]


class FakeStorage:
    """Providers that sign receipts, and fail as often as they are told to."""

    failures = 0

    def __init__(self, session: Any) -> None:
        pass

    async def upload(
        self, path: Path, deal: DealTerms, providers: dict[bytes, str], *arguments: Any, **options: Any
    ) -> list[tuple[bytes, bytes]]:
        if FakeStorage.failures:
            FakeStorage.failures -= 1
            raise UploadFailed([], {deal.providers[0]: "connection lost at segment 4"})
        digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
        names = {address(name): name for name in VALIDATORS}
        return [(operator, key(f"service:{names[operator]}").sign(digest)) for operator in deal.providers]

    async def download(self, root: bytes, size: int, urls: Sequence[str], target: Path, *arguments: Any) -> None:
        raise DownloadFailed(f"asked {len(urls)} providers")


@pytest.fixture
def client(network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch) -> MemoryClient:
    FakeStorage.failures = 0
    monkeypatch.setattr(storing, "StorageClient", FakeStorage)
    return network.client(key("alice"))


async def store(client: MemoryClient, folder: Path, *, data: bytes = b"weights", series: str = "models") -> Deal:
    (folder / "file").write_bytes(data)
    return await store_file(
        client, folder / "file", tier="hot", replicas=2, duration=100, series=series, journal=folder / "journal"
    )


def payments(network: MemoryNetwork) -> int:
    """Deals that were made on chain, whatever became of them."""
    return sum(1 for key_, _ in network.chain.state.iterate(b"deal/"))


async def test_a_stored_file_has_an_active_deal_and_the_hash_of_its_payment(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    deal = await store(client, tmp_path)
    assert (deal.status, deal.series, deal.size) == ("active", "models", 7)
    entry = DealJournal(tmp_path / "journal").get(deal.key)
    assert entry is not None
    assert network.results[bytes.fromhex(entry.tx_hash)] == (deal.id,)
    assert (await find_deal(client, deal.root)) == deal
    assert set(await provider_services(client, deal)) == set(deal.providers)


async def test_the_same_request_again_costs_nothing(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    first = await store(client, tmp_path)
    sent = len(network.sent)
    assert (await store(client, tmp_path)).id == first.id
    assert len(network.sent) == sent


@pytest.mark.parametrize("data", [b"", b"x", bytes(300_000)])
async def test_files_of_any_size_are_stored(client: MemoryClient, tmp_path: Path, data: bytes) -> None:
    assert (await store(client, tmp_path, data=data)).size == len(data)


async def test_an_upload_that_breaks_off_is_paid_once(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    FakeStorage.failures = 2
    for _ in range(2):
        with pytest.raises(UploadFailed, match="segment 4"):
            await store(client, tmp_path)
    assert (await store(client, tmp_path)).status == "active"
    assert payments(network) == 1
    assert len(network.messages_of(key("alice"), CreateDeal)) == 1


async def test_a_payment_whose_answer_is_lost_is_found_again(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node takes the transaction and dies before it says so; nothing is in the journal."""
    send = MemoryClient.send

    async def lost(self: MemoryClient, messages: Sequence[Message], **options: Any) -> Any:
        await send(self, messages, **options)
        monkeypatch.setattr(MemoryClient, "send", send)
        raise NodeUnreachable("http://memory", "connection reset")

    monkeypatch.setattr(MemoryClient, "send", lost)
    with pytest.raises(NodeUnreachable):
        await store(client, tmp_path)
    assert (await store(client, tmp_path)).status == "active"
    assert payments(network) == 1


@pytest.mark.parametrize("in_a_block", [False, True])
async def test_a_crash_around_the_block_of_the_payment_is_survived(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_block: bool
) -> None:
    make_block = MemoryNetwork.make_block

    async def crash(self: MemoryNetwork, *txs: bytes) -> list[Any]:
        if in_a_block:
            await make_block(self, *txs)
            network.results[sha256(txs[0])] = (1,)
        raise asyncio.CancelledError

    with monkeypatch.context() as broken:
        broken.setattr(MemoryNetwork, "make_block", crash)
        with pytest.raises(asyncio.CancelledError):
            await store(client, tmp_path)
    (written,) = (tmp_path / "journal").iterdir()
    before = msgspec.json.decode(written.read_bytes(), type=JournalEntry)
    deal = await store(client, tmp_path)
    entry = DealJournal(tmp_path / "journal").get(deal.key)
    assert entry == JournalEntry(tx_hash=before.tx_hash, deal_id=deal.id)
    assert network.results[bytes.fromhex(before.tx_hash)] == (deal.id,)
    assert payments(network) == 1


async def test_a_journal_whose_bytes_do_not_fit_their_hash_is_not_sent(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    deal = await store(client, tmp_path)
    DealJournal(tmp_path / "journal").put(deal.key, JournalEntry(tx_hash="ab" * 32, tx="00ff"))
    assert (await store(client, tmp_path)).id == deal.id
    assert payments(network) == 1


async def test_a_deal_that_is_over_is_followed_by_a_new_one(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    first = await store(client, tmp_path)
    await client.send([DeleteDeal(deal_id=first.id)])
    second = await store(client, tmp_path)
    assert second.id != first.id
    assert (second.status, second.root) == ("active", first.root)


async def test_a_deal_that_somebody_else_activated_first_is_fine(
    network: MemoryNetwork, client: MemoryClient, tmp_path: Path
) -> None:
    def activate_before(sender: bytes, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, ActivateDeal):
                network.on_send = None
                network.chain.ok("bob", message)

    network.on_send = activate_before
    assert (await store(client, tmp_path)).status == "active"


async def test_another_series_is_another_deal(network: MemoryNetwork, client: MemoryClient, tmp_path: Path) -> None:
    assert (await store(client, tmp_path)).id != (await store(client, tmp_path, series="other")).id


async def test_a_torn_journal_is_no_obstacle(network: MemoryNetwork, client: MemoryClient, tmp_path: Path) -> None:
    deal = await store(client, tmp_path)
    (tmp_path / "journal" / f"{deal.key.hex()}.json").write_bytes(b'{"tx_h')
    assert (await store(client, tmp_path)).id == deal.id
    assert payments(network) == 1


async def test_a_failed_download_leaves_no_file(client: MemoryClient, tmp_path: Path) -> None:
    deal = await store(client, tmp_path)
    with pytest.raises(DownloadFailed, match="asked 2 providers"):
        await fetch_file(client, deal, tmp_path / "target")
    assert not (tmp_path / "target").exists()


async def test_a_deal_without_serving_providers_is_named(client: MemoryClient, tmp_path: Path) -> None:
    deal = replace(await store(client, tmp_path), providers=(address("bob"),))
    with pytest.raises(StoringFailed, match=f"deal {deal.id} has a registered service"):
        await provider_services(client, deal)
