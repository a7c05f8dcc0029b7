"""Who may write, what is served, when a receipt is given and when data goes: decided by the deals on chain alone.

Before every answer the service makes sure that it has followed the chain to its current height, so a deal that ends
is gone from lists, answers and the disk at one and the same block.
"""

import asyncio
import logging
from dataclasses import asdict
from typing import Final

from primitives.deals import receipt_digest, segment_count
from primitives.encoding import EncodingError, decode
from primitives.keys import PrivateKey
from storage.cache import SegmentCache
from storage.errors import (
    BadRequest,
    Busy,
    FileGone,
    Incomplete,
    NoSpace,
    NotProvider,
    Over,
    OverBudget,
    SourceUnavailable,
    Unknown,
    UnwritableStore,
    WrongBytes,
    WrongSegment,
)
from storage.index import Bitmap
from storage.limits import Gate, ServiceLimits, StorageCounters
from storage.store import StorageStore
from storage.terms import DealSource, DealTerms
from storage.tree import Segment

log = logging.getLogger(__name__)

MAX_DEAL_ID: Final = 2**63 - 1


class StorageService:
    """One provider's storage. `operator` is its account address (20 bytes); receipts are signed by `service_key`."""

    def __init__(
        self,
        store: StorageStore,
        deals: DealSource,
        chain_id: str,
        operator: bytes,
        service_key: PrivateKey,
        *,
        limits: ServiceLimits | None = None,
    ) -> None:
        self.operator = operator
        self.limits = limits or ServiceLimits()
        self.counters = StorageCounters()
        self.uploads = Gate(self.limits.max_uploads, self.counters)
        self.reads = Gate(self.limits.max_reads, self.counters)
        self._store = store
        self._source = deals
        self._chain_id = chain_id
        self._key = service_key
        self._cache = SegmentCache(self.limits.cache_bytes)
        self._living: dict[int, DealTerms] = {}
        self._roots: dict[bytes, list[DealTerms]] = {}
        self._height = -1
        self._follow = asyncio.Lock()
        self._audits = asyncio.Semaphore(self.limits.max_audits)
        self._auditing: dict[int, asyncio.Lock] = {}
        self._receipts: dict[int, bytes] = {}

    @property
    def height(self) -> int:
        """The chain's height that every answer is about; -1 before the first."""
        return self._height

    # --- following the chain ------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Match what is on disk with the deals on chain.

        Raises: SourceUnavailable; nothing is dropped then, and the next request or height tries again.
        """
        await self.on_height(self._source.height())

    async def on_height(self, height: int) -> list[int]:
        """The chain has reached `height`: drop every deal that does not live at it, and the data no other deal keeps.

        Heights that were seen before change nothing. Returns: the ids of the deals dropped.
        Raises: SourceUnavailable when the chain cannot be asked; nothing is dropped then.
        """
        async with self._follow:
            if height <= self._height:
                return []
            return await self._match(height)

    async def _match(self, height: int) -> list[int]:
        listed = await self._source.for_provider(self.operator)
        living = {terms.id: terms for terms in listed if self._is_ours(terms, height)}
        over: dict[int, int] = {}
        references = self._store.references()
        for deal_id in references.keys() - living.keys():
            # The list may be older than a deal whose upload has begun, so ask for this one before letting go.
            terms = await self._source.get(deal_id)
            if terms is not None and self._is_ours(terms, height):
                living[deal_id] = terms
            else:
                over[deal_id] = terms.gone_height(height) if terms is not None else height
        if height < self._store.height:
            log.warning(
                "storage: the chain is at height %d, below %d seen before; keeping all", height, self._store.height
            )
            over = {}
        self._height = height
        self._set_living(living)
        await asyncio.to_thread(self._apply, living, references, over, height)
        return sorted(over)

    def _set_living(self, living: dict[int, DealTerms]) -> None:
        before = self._roots
        self._living = living
        self._roots = {}
        for terms in living.values():
            self._roots.setdefault(terms.root, []).append(terms)
        for root in before.keys() - self._roots.keys():
            self._cache.forget(root)
        for deal_id in self._receipts.keys() - living.keys():
            del self._receipts[deal_id]

    def _apply(
        self, living: dict[int, DealTerms], references: dict[int, bytes], over: dict[int, int], height: int
    ) -> None:
        """On disk: first keep files for new deals of the same root, then let go. What fails is tried again."""
        try:
            for terms in living.values():
                if terms.id not in references and self._store.has(terms.root, terms.size):
                    self._store.refer(terms.id, terms.root, terms.size)
        except (OverBudget, UnwritableStore) as error:
            self._note_disk_error(error)
        for deal_id, gone_height in over.items():
            try:
                self.counters.files_dropped += self._store.release(deal_id, gone_height)
                self.counters.deals_dropped += 1
            except UnwritableStore as error:
                self._note_disk_error(error)
        try:
            self._store.note_height(height)
        except (OverBudget, UnwritableStore) as error:
            self._note_disk_error(error)

    def _note_disk_error(self, error: Exception) -> None:
        self.counters.disk_errors += 1
        log.error("storage: %s", error)

    def _is_ours(self, terms: DealTerms, height: int) -> bool:
        return terms.lives_at(height) and self.operator in terms.providers

    async def _catch_up(self) -> None:
        try:
            await self.on_height(self._source.height())
        except SourceUnavailable as error:
            raise Busy(f"the chain cannot be asked right now: {error}") from error

    # --- questions ----------------------------------------------------------------------------------------------
    async def deal(self, deal_id: int) -> DealTerms:
        """The living deal of this id that names this operator.

        Raises: Unknown, Over (with the height), NotProvider; Busy when the chain cannot be asked.
        """
        if not 0 <= deal_id <= MAX_DEAL_ID:
            raise Unknown(f"no deal {deal_id}")
        await self._catch_up()
        if (known := self._living.get(deal_id)) is not None:
            return known
        terms = await self._ask(deal_id)
        if terms is None:
            raise Unknown(f"no deal {deal_id} at height {self._height}")
        if not terms.lives_at(self._height):
            gone = terms.gone_height(self._height)
            raise Over(f"deal {deal_id} is {terms.status} since height {gone}", gone_height=gone)
        if self.operator not in terms.providers:
            raise NotProvider(f"deal {deal_id} does not name this operator as a provider")
        self._living[deal_id] = terms
        self._roots.setdefault(terms.root, []).append(terms)
        return terms

    async def _ask(self, deal_id: int) -> DealTerms | None:
        """The deal as of the height that answers are about, also when that moves on while we ask."""
        try:
            while True:
                height = self._height
                terms = await self._source.get(deal_id)
                if height == self._height:
                    return terms
        except SourceUnavailable as error:
            raise Busy(f"the chain cannot be asked right now: {error}") from error

    async def list_deals(self, *, after: int, limit: int) -> list[DealTerms]:
        """Living deals of this operator with ids above `after`, lowest first, at most `limit`."""
        await self._catch_up()
        return [self._living[deal_id] for deal_id in sorted(self._living) if deal_id > after][:limit]

    async def file(self, root: bytes) -> DealTerms:
        """A living deal that names `root`; what is held of it is told by `held`.

        Raises: Unknown; Over for a file that was here and went.
        """
        await self._catch_up()
        if root in self._roots:
            return next(
                (terms for terms in self._roots[root] if self._store.has(root, terms.size)), self._roots[root][0]
            )
        gone = self._store.gone_height(root)
        if gone is not None and gone <= self._height:
            raise Over(f"the last deal of this file ended; gone since height {gone}", gone_height=gone)
        raise Unknown("no living deal names this file here")

    def held(self, terms: DealTerms) -> Bitmap:
        """Which segments are here."""
        return self._store.held(terms.root, terms.size)

    def num_held(self, terms: DealTerms) -> int:
        """How many segments are here."""
        return self._store.num_held(terms.root, terms.size)

    def is_complete(self, terms: DealTerms) -> bool:
        """Whether all segments are here (an empty file has none, but must have the empty file's root)."""
        return self._store.is_complete(terms.root, terms.size)

    def metrics(self) -> dict[str, int]:
        """Counters and current values, by name."""
        return asdict(self.counters) | {
            "height": self._height,
            "deals_living": len(self._living),
            "files_held": self._store.num_files,
            "bytes_held": self._store.used_bytes,
            "segments_rotten": self._store.num_rotten,
            "cache_bytes": self._cache.num_bytes,
            "uploads_running": self.uploads.inside,
            "reads_running": self.reads.inside,
        }

    # --- data ---------------------------------------------------------------------------------------------------
    async def put_segment(self, deal_id: int, index: int, body: bytes) -> bool:
        """Store one segment (`body`: canonical bytes of a `Segment`) for a living deal.

        Returns: True when stored now, False when it was here already.
        Raises: as `deal`, and BadRequest, WrongSegment, NoSpace, Over.
        """
        terms = await self.deal(deal_id)
        if not 0 <= index < segment_count(terms.size):
            raise BadRequest(f"segment {index} of a file with {segment_count(terms.size)} segments")
        try:
            segment = decode(body, Segment)
            stored = await asyncio.to_thread(self._store.put, deal_id, terms.root, terms.size, index, segment)
        except EncodingError as error:
            raise BadRequest(f"the body is not a segment: {error}") from error
        except WrongBytes as error:
            self.counters.wrong_segments_refused += 1
            raise WrongSegment(str(error)) from error
        except (OverBudget, UnwritableStore) as error:
            self.counters.no_space_refused += 1
            log.warning("storage: segment %d of deal %d refused: %s", index, deal_id, error)
            raise NoSpace(f"no room for this file: {error}") from error
        except FileGone as error:
            raise Over(str(error), gone_height=self._height) from error
        await self._still_living(deal_id)
        self.counters.segments_received += stored
        self.counters.segments_known_already += not stored
        self.counters.bytes_received += len(segment.data) if stored else 0
        return stored

    async def receipt(self, deal_id: int) -> bytes:
        """The service key's signature that every byte of the deal's file is here; all are read and checked first.

        Raises: as `deal`, and Incomplete when a byte is missing or damaged, NoSpace.
        """
        terms = await self.deal(deal_id)
        async with self._auditing.setdefault(deal_id, asyncio.Lock()):
            if deal_id in self._receipts and self.is_complete(terms):
                return self._receipts[deal_id]
            try:
                await self._audit(terms)
            finally:
                self._auditing.pop(deal_id, None)
            await self._still_living(deal_id)
            digest = receipt_digest(self._chain_id, deal_id, terms.root, terms.size)
            self._receipts[deal_id] = self._key.sign(digest)
            self.counters.receipts_given += 1
            return self._receipts[deal_id]

    async def _audit(self, terms: DealTerms) -> None:
        async with self._audits:
            try:
                known = await asyncio.to_thread(self._store.refer, terms.id, terms.root, terms.size)
            except (OverBudget, UnwritableStore) as error:
                raise NoSpace(f"cannot keep this file: {error}") from error
            # What is known to be incomplete is not read: anyone may ask, and reading a file is work.
            whole = known and self.is_complete(terms)
            if not whole or not await asyncio.to_thread(self._store.audit, terms.root, terms.size):
                if terms.size == 0:
                    raise Incomplete(f"the root of deal {terms.id} is not that of an empty file")
                held = self.held(terms)
                raise Incomplete(f"{held.total - held.count} of {held.total} segments of deal {terms.id} are missing")

    async def _still_living(self, deal_id: int) -> None:
        """A deal that ended while its bytes were on their way keeps nothing."""
        if deal_id not in self._living:
            await asyncio.to_thread(self._store.release, deal_id, self._height)
            raise Over(f"deal {deal_id} ended meanwhile", gone_height=self._height)

    async def read_segment(self, root: bytes, index: int) -> bytes:
        """The canonical bytes of a `Segment` of a file with a living deal.

        Raises: as `file`, and Unknown when this segment is not here.
        """
        terms = await self.file(root)
        body = self._cache.get(root, index)
        if body is not None:
            self.counters.cache_hits += 1
        else:
            body = await asyncio.to_thread(self._store.read, root, index)
            if body is None:
                raise Unknown(f"segment {index} of {segment_count(terms.size)} is not held here")
            if root not in self._roots:
                raise Over("the last deal of this file ended meanwhile", gone_height=self._height)
            if any(deal.tier == "hot" for deal in self._roots[root]):
                self.counters.cache_misses += 1
                self._cache.add(root, index, body)
        self.counters.segments_served += 1
        self.counters.bytes_served += len(body)
        return body
