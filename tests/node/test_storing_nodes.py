"""FAULTS S5: the connection dies on the way and the retry goes to another node, which is behind. One payment, and the
hash that is written down is the one that was paid."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from abci_app import tables
from abci_app.records import Deal
from node import sending, storing
from node.client import Client
from node.errors import NodeUnreachable, TransactionPending
from node.init import SERVICE_KEY
from node.keys import load_key
from node.storing import DealJournal, JournalEntry, StoringFailed, store_file
from primitives.deals import receipt_digest
from primitives.keys import PrivateKey
from storage.errors import UploadFailed
from storage.terms import DealTerms
from tests.node.conftest import ALICE, CHAIN_ID, Made, Served, open_engine, serving
from tests.node.engine_double import EngineDouble
from tests.node.test_sending import blocks_as_needed, waiting


class OneProvider:
    """Signs receipts with the node's service key; breaks off as often as it is told to."""

    key: PrivateKey
    failures = 0

    def __init__(self, session: Any) -> None:
        pass

    async def upload(
        self, path: Path, deal: DealTerms, providers: dict[bytes, str], *arguments: Any, **options: Any
    ) -> list[tuple[bytes, bytes]]:
        if OneProvider.failures:
            OneProvider.failures -= 1
            raise UploadFailed([], {deal.providers[0]: "connection lost at segment 4"})
        digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
        return [(operator, OneProvider.key.sign(digest)) for operator in deal.providers]


@dataclass
class TwoNodes:
    """One chain on two nodes; the second one knows of a block only after `sync`."""

    first: Served
    second: Served
    folder: Path

    def sync(self) -> None:
        for txs, _, _ in self.first.engine.blocks[self.second.engine.height :]:
            self.second.engine.deliver(txs)

    async def store(self, node: Served, *, timeout_s: float = 30.0) -> Deal:
        """As a new process would do it."""
        async with Client(node.url, key=ALICE) as client:
            return await store_file(
                client,
                self.folder / "file",
                tier="hot",
                replicas=1,
                duration=100,
                series="models",
                journal=self.folder / "journal",
                timeout_s=timeout_s,
            )

    def written(self) -> JournalEntry:
        (path,) = (self.folder / "journal").iterdir()
        entry = DealJournal(self.folder / "journal").get(bytes.fromhex(path.stem))
        assert entry is not None
        return entry

    def payments(self) -> list[str]:
        """Hashes of the transactions that made the first node's deals."""
        return [self._maker(deal) for _, deal in tables.DEALS.iterate(self.first.engine.store.committed)]

    def _maker(self, deal: Deal) -> str:
        txs, receipts, _ = self.first.engine.blocks[deal.created_height - 1]
        (tx,) = [tx for tx, receipt in zip(txs, receipts, strict=True) if receipt.code == 0]
        return sending.tx_hash(tx).hex()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, made: Made) -> None:
    monkeypatch.setattr(sending, "RETRY_S", 0.01)
    monkeypatch.setattr(sending, "RESEND_S", 0.1)
    OneProvider.key, OneProvider.failures = load_key(made.home / SERVICE_KEY), 0
    monkeypatch.setattr(storing, "StorageClient", OneProvider)


@pytest.fixture
def second_engine(made: Made, tmp_path: Path) -> Iterator[EngineDouble]:
    with open_engine(made, tmp_path / "second") as engine:
        yield engine


@pytest.fixture
async def nodes(made: Made, served: Served, second_engine: EngineDouble, tmp_path: Path) -> AsyncIterator[TwoNodes]:
    (tmp_path / "file").write_bytes(b"weights" * 1000)
    async with serving(made, second_engine) as second:
        yield TwoNodes(served, second, tmp_path)


async def test_an_upload_that_breaks_off_goes_on_at_a_node_that_has_to_catch_up_first(nodes: TwoNodes) -> None:
    OneProvider.failures = 1
    async with blocks_as_needed(nodes.first):
        with pytest.raises(UploadFailed, match="segment 4"):
            await nodes.store(nodes.first)
    paid = nodes.written()
    with pytest.raises(StoringFailed, match="catching up"):
        await nodes.store(nodes.second)
    nodes.sync()
    async with blocks_as_needed(nodes.second):
        deal = await nodes.store(nodes.second)
    assert (deal.id, deal.status) == (paid.deal_id, "active")
    assert nodes.written() == paid
    assert nodes.payments() == [paid.tx_hash]


async def test_a_payment_under_way_is_sent_again_with_the_same_bytes_also_to_a_node_that_is_behind(
    nodes: TwoNodes,
) -> None:
    with pytest.raises(TransactionPending):
        await nodes.store(nodes.first, timeout_s=0.3)
    paid = nodes.written()
    nodes.first.engine.deliver()
    with pytest.raises(TransactionPending):
        await nodes.store(nodes.second, timeout_s=0.3)
    assert [tx.hex() for tx in nodes.second.engine.mempool] == [paid.tx]
    nodes.second.engine.drop_waiting()
    nodes.sync()
    async with blocks_as_needed(nodes.second):
        deal = await nodes.store(nodes.second)
    assert deal.status == "active"
    assert nodes.written() == JournalEntry(tx_hash=paid.tx_hash, deal_id=deal.id)
    assert nodes.payments() == [paid.tx_hash]


async def test_a_payment_whose_answer_was_lost_is_found_in_its_block(nodes: TwoNodes) -> None:
    lost = asyncio.create_task(nodes.store(nodes.first))
    await waiting(nodes.first)
    nodes.first.engine.down = True
    lost.cancel()
    await asyncio.wait({lost})
    paid = nodes.written()
    nodes.first.engine.down = False
    async with blocks_as_needed(nodes.first):
        deal = await nodes.store(nodes.first)
    assert nodes.written() == JournalEntry(tx_hash=paid.tx_hash, deal_id=deal.id)
    assert nodes.payments() == [paid.tx_hash]


async def test_a_payment_that_missed_its_last_height_is_signed_anew(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as soon:
        soon.setattr(sending, "VALID_BLOCKS", 2)
        with pytest.raises(TransactionPending):
            await nodes.store(nodes.first, timeout_s=0.3)
    missed = nodes.written()
    nodes.first.engine.drop_waiting()
    for _ in range(4):
        nodes.first.engine.deliver([])
    async with blocks_as_needed(nodes.first):
        deal = await nodes.store(nodes.first)
    assert deal.status == "active"
    assert nodes.written().tx_hash != missed.tx_hash
    assert nodes.payments() == [nodes.written().tx_hash]


async def test_a_payment_whose_nonce_another_program_used_is_signed_anew(nodes: TwoNodes) -> None:
    with pytest.raises(TransactionPending):
        await nodes.store(nodes.first, timeout_s=0.3)
    overtaken = nodes.written()
    nodes.first.engine.drop_waiting()
    async with blocks_as_needed(nodes.first):
        async with Client(nodes.first.url, key=ALICE) as other:
            await other.send([sending.Transfer(to=bytes(20), amount=1)])
        deal = await nodes.store(nodes.first)
    assert deal.status == "active"
    assert nodes.written().tx_hash != overtaken.tx_hash
    assert nodes.payments() == [nodes.written().tx_hash]


async def test_without_any_node_nothing_is_written_that_a_later_try_could_trip_over(nodes: TwoNodes) -> None:
    async with Client("http://127.0.0.1:1", key=ALICE) as client:
        with pytest.raises(NodeUnreachable):
            await store_file(
                client,
                nodes.folder / "file",
                tier="hot",
                replicas=1,
                duration=100,
                series="models",
                journal=nodes.folder / "journal",
            )
    async with blocks_as_needed(nodes.first):
        assert (await nodes.store(nodes.first)).status == "active"
