"""Files into storage and out of it: the deal on chain, the upload, the activation, without ever paying twice.

The deal's idempotency key follows from the content, the owner, the series and the terms, so the same request after a
crash or a lost answer finds the deal that was paid already. The hash of the paying transaction is written down before
its block is waited for.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from abci_app.errors import DealNotPending, MalformedMessage
from abci_app.forms import check_form
from abci_app.messages import ActivateDeal, CreateDeal
from abci_app.records import Deal, Validator
from node.client import Client
from node.errors import NodeError, TransactionFailed, TransactionPending
from node.worker_home import write_atomically
from primitives.deals import Tier
from primitives.encoding import encode
from primitives.hashing import tagged_hash
from storage.client import StorageClient
from storage.terms import DealTerms
from storage.tree import FileTree

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

TX_POLL_S: Final = 2.0
DEFAULT_TIMEOUT_S: Final = 60.0


class StoringFailed(NodeError):
    """A file could not be stored or fetched; the message says why and what to do."""


class JournalEntry(msgspec.Struct, frozen=True):
    """Where one deal stands."""

    tx_hash: str
    """Of the transaction that pays, hex."""
    deal_id: int = 0
    """0 until the transaction is in a block."""


class DealJournal:
    """Deals under way, one small file for each idempotency key, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: bytes) -> JournalEntry | None:
        """None when there is no entry, or it is not readable (the chain's own key check still holds then)."""
        try:
            return msgspec.json.decode(self._path(key).read_bytes(), type=JournalEntry)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def put(self, key: bytes, entry: JournalEntry) -> None:
        """Raises: OSError when it cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(key), msgspec.json.encode(entry))

    def drop(self, key: bytes) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}.json"


def deal_key(
    owner: bytes, root: bytes, tier: Tier, replicas: int, duration: int, series: str, attempt: int = 0
) -> bytes:
    """The idempotency key of a request, 32 bytes. `attempt` counts deals of the same request that are over."""
    return tagged_hash("outerstep/deal-key/1", encode([owner, root, tier, replicas, duration, series, attempt]))


async def store_file(
    client: Client,
    path: Path,
    *,
    tier: Tier,
    replicas: int,
    duration: int,
    series: str,
    journal: Path,
    on_progress: Progress | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Deal:
    """Store the file at `path` for `duration` blocks and return its active deal; pays from the client's account.

    Run again after any interruption it goes on where it stopped: it pays once, and sends only missing segments.
    Raises: StoringFailed, NodeError, storage.errors.StorageError, OSError.
    """
    assert client.key is not None
    tree = await asyncio.to_thread(FileTree.build, path)
    order = CreateDeal(
        key=bytes(32), root=tree.root, size=tree.size, tier=tier, replicas=replicas, duration=duration, series=series
    )
    _check_order(order)
    deal = await _open_deal(client, order, DealJournal(journal), timeout_s)
    if deal.status == "active":
        return deal
    services = await provider_services(client, deal)
    receipts = await StorageClient(client.session).upload(
        path,
        deal_terms(deal),
        {operator: validator.url for operator, validator in services.items()},
        on_progress,
        chain_id=await client.chain_id(),
        service_keys={operator: validator.service_key for operator, validator in services.items()},
    )
    return await _activate(client, deal, receipts, timeout_s)


async def fetch_file(client: Client, deal: Deal, target: Path, *, on_progress: Progress | None = None) -> None:
    """Fetch the deal's file to `target`, resuming and checking every byte against the deal's root.

    Raises: NodeError, storage.errors.StorageError, OSError.
    """
    urls = [validator.url for validator in (await provider_services(client, deal)).values()]
    await StorageClient(client.session).download(deal.root, deal.size, urls, target, on_progress)


async def provider_services(client: Client, deal: Deal) -> dict[bytes, Validator]:
    """The deal's providers that serve: operator -> its record, with key and address of its services.

    Raises: StoringFailed when none has registered a service.
    """
    found = await asyncio.gather(*(client.validator(operator) for operator in deal.providers))
    services = {validator.operator: validator for validator in found if validator is not None and validator.url}
    if not services:
        raise StoringFailed(f"no provider of deal {deal.id} has a registered service; ask its owner to store it again")
    return services


def deal_terms(deal: Deal) -> DealTerms:
    """The deal as the storage package sees it."""
    return DealTerms(
        id=deal.id,
        root=deal.root,
        size=deal.size,
        tier=deal.tier,
        end_height=deal.end_height,
        providers=deal.providers,
        owner=deal.owner,
        series=deal.series,
        status=deal.status,
        closed_height=deal.closed_height,
    )


async def find_deal(client: Client, root: bytes) -> Deal | None:
    """An active deal of the file with this root, the one that ends last; None when there is none."""
    deals = await client.every(lambda cursor: client.deals(status="active", cursor=cursor, limit=500))
    return max((deal for deal in deals if deal.root == root), key=lambda deal: deal.end_height, default=None)


def _check_order(order: CreateDeal) -> None:
    """Raises: StoringFailed for terms that no chain takes."""
    try:
        check_form(order)
    except MalformedMessage as error:
        raise StoringFailed(str(error)) from error


async def _open_deal(client: Client, order: CreateDeal, journal: DealJournal, timeout_s: float) -> Deal:
    """The living deal of this order: an earlier one that was paid already, else a new one."""
    assert client.key is not None
    attempt = 0
    while True:
        key = deal_key(
            client.key.address, order.root, order.tier, order.replicas, order.duration, order.series, attempt
        )
        deal_id = await _paid_deal(client, msgspec.structs.replace(order, key=key), journal, timeout_s)
        deal = await client.deal(deal_id)
        if deal is None:
            raise StoringFailed(f"the node does not know deal {deal_id} yet; is it catching up? Try again")
        if deal.status in ("pending", "active"):
            return deal
        attempt += 1


async def _paid_deal(client: Client, order: CreateDeal, journal: DealJournal, timeout_s: float) -> int:
    entry = journal.get(order.key)
    if entry is not None and entry.deal_id:
        return entry.deal_id
    while True:
        if entry is None:
            sent = await client.send([order], wait=False, timeout_s=timeout_s)
            entry = JournalEntry(tx_hash=sent.hash.hex())
            journal.put(order.key, entry)
        deal_id = await _deal_of(client, bytes.fromhex(entry.tx_hash), timeout_s)
        if deal_id:
            journal.put(order.key, msgspec.structs.replace(entry, deal_id=deal_id))
            return deal_id
        journal.drop(order.key)
        entry = None


async def _deal_of(client: Client, tx_hash: bytes, timeout_s: float) -> int:
    """The id that the transaction created; 0 when it will never be in a block (sending it anew is right then).

    Raises: TransactionFailed when the rules refused it, TransactionPending when it is not in a block in time.
    """
    unknown = 0
    for _ in range(max(1, round(timeout_s / TX_POLL_S))):
        status = await client.tx(tx_hash, wait_s=TX_POLL_S)
        if status.status == "committed":
            if status.code != 0:
                raise TransactionFailed(status.code, status.log, tx_hash=tx_hash, height=status.height)
            return status.ids[0]
        unknown += status.status == "unknown"
        if status.status == "expired" or unknown > 1:
            return 0
    raise TransactionPending(tx_hash)


async def _activate(client: Client, deal: Deal, receipts: list[tuple[bytes, bytes]], timeout_s: float) -> Deal:
    try:
        await client.send([ActivateDeal(deal_id=deal.id, receipts=tuple(sorted(receipts)))], timeout_s=timeout_s)
    except TransactionFailed as error:
        if error.code != DealNotPending.code:
            raise
    current = await client.deal(deal.id)
    if current is None or current.status != "active":
        state = "unknown" if current is None else current.status
        raise StoringFailed(f"deal {deal.id} is {state} after its upload; run the same command again")
    return current
