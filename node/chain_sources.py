"""What DA layer and storage ask about the chain, answered from the node's committed state."""

from typing import Final

from abci_app import tables
from abci_app.records import Account, Deal
from abci_app.rules.blobs import blob_key, blob_price
from da_layer.errors import ChainUnavailable
from node.chain import ChainState
from node.deal_terms import deal_terms
from node.errors import NodeError
from node.follower import Follower
from primitives.blobs import BlobPromise, ServiceSet
from storage.errors import SourceUnavailable
from storage.terms import DealTerms

PROMISE_BLOCKS: Final = 200
"""How long a promise counts against its publisher's balance while its certificate is not on chain."""


class ChainForBlobs:
    """`da_layer.admission.DaChain` for one node."""

    def __init__(self, state: ChainState, follower: Follower) -> None:
        self._state = state
        self._follower = follower
        self._open: dict[bytes, dict[bytes, tuple[int, int, BlobPromise]]] = {}

    def height(self) -> int:
        return self._follower.height

    async def service_set(self, version: int) -> ServiceSet | None:
        """Raises: ChainUnavailable."""
        if not 0 <= version < 2**63:
            return None
        try:
            return await self._state.get(tables.SERVICE_SETS, version)
        except NodeError as error:
            raise ChainUnavailable(str(error)) from error

    async def may_publish(self, promise: BlobPromise) -> str | None:
        """None when the publisher can pay for this blob and for all others that it has promised here lately.

        Raises: ChainUnavailable.
        """
        try:
            return await self._refusal(promise)
        except NodeError as error:
            raise ChainUnavailable(str(error)) from error

    async def _refusal(self, promise: BlobPromise) -> str | None:
        params = await self._state.get(tables.PARAMS)
        if params is None:
            raise ChainUnavailable("the chain has no parameters yet")
        height = self.height()
        lifetime = promise.expiry_height - height
        if not 0 < lifetime <= params.max_blob_lifetime + 1:
            return f"expiry height {promise.expiry_height} is not within {params.max_blob_lifetime} blocks from now"
        price = blob_price(promise.header.size, lifetime, params)
        await self._drop_closed(promise.publisher, height)
        account = await self._state.get(tables.ACCOUNTS, promise.publisher) or Account()
        # No await from here on: of two promises that are asked about at once, one must see the other.
        open_here = self._open.get(promise.publisher, {})
        promised = sum(amount for digest, (amount, _, _) in open_here.items() if digest != promise.digest)
        if account.balance < promised + price:
            return (
                f"it costs {price} x 10^-6 token; the publisher has {account.balance}, of which {promised} are "
                "promised for blobs that are not certified yet"
            )
        self._open.setdefault(promise.publisher, {})[promise.digest] = (price, height, promise)
        return None

    async def _drop_closed(self, publisher: bytes, height: int) -> None:
        """Forget the publisher's promises that are too old, or paid for."""
        open_here = self._open.get(publisher, {})
        for digest, entry in tuple(open_here.items()):
            _, since, promise = entry
            closed = height - since > PROMISE_BLOCKS or await self._is_certified(promise)
            if closed and open_here.get(digest) is entry:
                del open_here[digest]
        if not open_here and self._open.get(publisher) is open_here:
            del self._open[publisher]

    async def _is_certified(self, promise: BlobPromise) -> bool:
        """Whether this very promise is on chain; a record of the same blob until another height pays for nothing."""
        key = blob_key(promise.header.commitment, promise.publisher, promise.namespace)
        blob = await self._state.get(tables.BLOBS, *key)
        return blob is not None and (blob.expiry_height, blob.set_version) == (
            promise.expiry_height,
            promise.set_version,
        )


class ChainDeals:
    """`storage.terms.DealSource` for one node."""

    def __init__(self, state: ChainState, follower: Follower) -> None:
        self._state = state
        self._follower = follower
        self._known: dict[bytes, Deal] = {}

    def height(self) -> int:
        return self._follower.height

    async def get(self, deal_id: int) -> DealTerms | None:
        """Raises: SourceUnavailable."""
        try:
            deal = await self._state.get(tables.DEALS, deal_id)
        except NodeError as error:
            raise SourceUnavailable(str(error)) from error
        return None if deal is None else deal_terms(deal)

    async def for_provider(self, operator: bytes) -> list[DealTerms]:
        """Every living deal that names `operator`. Only deals that are new or changed are read again.

        Raises: SourceUnavailable.
        """
        try:
            living = await self._living()
        except NodeError as error:
            raise SourceUnavailable(str(error)) from error
        return [deal_terms(deal) for deal in living if operator in deal.providers]

    async def _living(self) -> list[Deal]:
        """By the chain's index of end heights: an entry is written anew whenever the end of a deal moves."""
        keys = await self._state.keys(tables.DEALS_BY_END)
        known: dict[bytes, Deal] = {}
        for key in keys:
            deal = self._known.get(key)
            if deal is None or deal.status == "pending":
                deal = await self._state.get(tables.DEALS, int.from_bytes(key[-8:], "big"))
            if deal is not None:
                known[key] = deal
        self._known = known
        return list(known.values())
