"""Files into storage and out of it: the deal on chain, the upload, the activation, without ever paying twice.

The deal's idempotency key follows from the content, the owner, the series and the terms, so the same request after a
crash or a lost answer finds the deal that was paid already. The paying transaction is written down before it is sent,
and as long as its bytes can apply only these bytes are sent again, be it to another node.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import msgspec

from abci_app.errors import DealNotPending, Expired, MalformedMessage
from abci_app.forms import check_form
from abci_app.messages import ActivateDeal, CreateDeal
from abci_app.records import Deal, Validator
from abci_app.transactions import tx_hash
from node.client import Client
from node.deal_terms import deal_terms
from node.errors import NOT_INCLUDED, NodeError, NonceUsed, TransactionFailed
from node.files import write_atomically
from node.sending import SignedTransaction, TxResult
from primitives.deals import Tier
from primitives.encoding import encode
from primitives.hashing import tagged_hash
from storage.client import StorageClient
from storage.tree import FileTree

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

DEFAULT_TIMEOUT_S: Final = 60.0


class StoringFailed(NodeError):
    """A file could not be stored or fetched; the message says why and what to do."""


class JournalEntry(msgspec.Struct, frozen=True):
    """Where one deal stands."""

    tx_hash: str
    """Of the transaction that pays, hex."""
    deal_id: int = 0
    """0 until the transaction is in a block."""
    tx: str = ""
    """Its bytes while it is not, hex."""
    nonce: int = 0
    valid_until_height: int = 0

    @classmethod
    def of(cls, signed: SignedTransaction) -> Self:
        return cls(
            tx_hash=signed.hash.hex(),
            tx=signed.data.hex(),
            nonce=signed.nonce,
            valid_until_height=signed.valid_until_height,
        )

    @property
    def signed(self) -> SignedTransaction | None:
        """What to send again; None when the entry does not hold it."""
        try:
            data = bytes.fromhex(self.tx)
        except ValueError:
            return None
        if not data or tx_hash(data).hex() != self.tx_hash:
            return None
        return SignedTransaction(data, bytes.fromhex(self.tx_hash), self.nonce, self.valid_until_height)


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
        if deal_terms(deal).lives_at(await client.height()):
            return deal
        attempt += 1


async def _paid_deal(client: Client, order: CreateDeal, journal: DealJournal, timeout_s: float) -> int:
    """The id of the deal that the order's one payment made.

    Raises: TransactionFailed when the rules refuse it, TransactionPending, NodeUnreachable.
    """
    entry = journal.get(order.key)
    if entry is not None and entry.deal_id:
        return entry.deal_id
    result = await _send_again(client, entry.signed if entry is not None else None, timeout_s)
    if result is None:
        result = await client.send(
            [order],
            timeout_s=timeout_s,
            on_signed=lambda signed: journal.put(order.key, JournalEntry.of(signed)),
        )
    journal.put(order.key, JournalEntry(tx_hash=result.hash.hex(), deal_id=result.ids[0]))
    return result.ids[0]


async def _send_again(client: Client, signed: SignedTransaction | None, timeout_s: float) -> TxResult | None:
    """The result of a payment that was sent before; None when it has no effect and never will have one.

    A node that is behind may refuse what others have taken, so its no to bytes that are still valid is an error here.
    """
    if signed is None:
        return None
    try:
        return await client.submit(signed, timeout_s=timeout_s)
    except NonceUsed:
        return None
    except TransactionFailed as error:
        if error.height or error.code in (NOT_INCLUDED, Expired.code):
            return None
        raise


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
