"""Read a blob back: just enough rows from many members at once, each proven before use.

Data rows are asked for first, as they need no decoding. Whoever fails, lies or takes long is replaced by rows of
others; a slow member's rows are still welcome when they come.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aiohttp import ClientSession

from da_layer.coding import decode_rows, verify_row
from da_layer.errors import BlobPruned, BlobUnavailable, BlobUnknown, InvalidBlob, RetrievalFailed
from da_layer.peers import NO_SERVICE, PeerError, Progress, blob_url, call, name_of
from da_layer.wire import PROOF_BYTES, ProvenRow, ProvenRows
from primitives.blobs import BlobHeader, ServiceMember, ServiceSet, assign_rows, check_header, row_counts
from primitives.encoding import EncodingError, decode

HEDGE_S: Final = 2.0
"""A member that has not answered within this time is no longer counted on: others are asked for other rows."""
MAX_FAILURES: Final = 3
_BATCH_BYTES: Final = 8 * 1024 * 1024
_BACKOFF_S: Final = 0.2


async def retrieve(
    session: ClientSession,
    header: BlobHeader,
    members: ServiceSet,
    *,
    timeout_s: float,
    on_progress: Progress | None = None,
    hedge_s: float = HEDGE_S,
) -> bytes:
    """The blob behind `header`, from members of the service set that its rows were placed by.

    `header` must come from the chain (or another source that is trusted). Memory: at most 4 x the blob, plus 16 MiB
    or two rows, whichever is more, for each member.

    Raises: InvalidBlob (header and members do not fit), BlobUnknown, BlobPruned, BlobUnavailable, InvalidEncoding.
    """
    try:
        check_header(header)
    except ValueError as error:
        raise InvalidBlob(str(error)) from error
    if not members.total_stake or sum(row_counts(header.k, members.members)) != header.n:
        raise InvalidBlob(f"k = {header.k}, n = {header.n} do not fit service set {members.version}")
    retrieval = _Retrieval(session, header, members, timeout_s, hedge_s, on_progress or (lambda done, total: None))
    rows = await retrieval.run()
    return await asyncio.to_thread(decode_rows, header, rows)


@dataclass(slots=True, eq=False)
class _Peer:
    member: ServiceMember
    rows_left: list[int]
    """Rows not asked for yet, lowest (data rows) first."""
    batch: list[int] = field(default_factory=list)
    """Rows being asked for."""
    asked_at: float = 0.0
    not_before: float = 0.0
    failures: int = 0
    answer: str = "was not asked"
    error: str = ""
    height: int = 0
    over: bool = False
    """No more requests to this member."""

    def ready(self, now: float) -> bool:
        return not self.over and not self.batch and bool(self.rows_left) and self.not_before <= now


@dataclass(frozen=True, slots=True)
class _Answer:
    proven: list[ProvenRow]
    num_false: int
    """Rows that were not asked for or do not prove."""


class _Retrieval:
    def __init__(
        self,
        session: ClientSession,
        header: BlobHeader,
        members: ServiceSet,
        timeout_s: float,
        hedge_s: float,
        on_progress: Progress,
    ) -> None:
        self._session = session
        self._header = header
        self._members = members
        self._timeout_s = timeout_s
        self._hedge_s = hedge_s
        self._on_progress = on_progress
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + timeout_s
        self._rows: dict[int, bytes] = {}
        self._tasks: dict[asyncio.Task[_Answer], _Peer] = {}
        assigned = assign_rows(header.commitment, header.k, members.members)
        self._peers = [_Peer(member, list(rows)) for member, rows in zip(members.members, assigned, strict=True)]
        for peer in self._peers:
            if not peer.member.url:
                peer.over, peer.answer = True, NO_SERVICE

    async def run(self) -> dict[int, bytes]:
        """Exactly k or more proven rows. Raises: RetrievalFailed."""
        try:
            while len(self._rows) < self._header.k:
                now = self._clock()
                self._ask(now)
                wake = self._next_wake(now)
                if wake is None or now >= self._deadline:
                    raise self._failure()
                await self._wait(max(0.0, min(wake, self._deadline) - now))
            return self._rows
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ask(self, now: float) -> None:
        """Ask ready members until the rows that are here and those counted on make k: data rows first."""
        on_time = [peer for peer in self._peers if peer.batch and now - peer.asked_at < self._hedge_s]
        missing = self._header.k - len(self._rows) - sum(len(peer.batch) for peer in on_time)
        for highest in (self._header.k, self._header.n):
            ready = [peer for peer in self._peers if peer.ready(now)]
            for position, peer in enumerate(ready):
                if missing <= 0:
                    return
                share = -(-missing // (len(ready) - position)) if highest == self._header.n else missing
                missing -= self._ask_peer(peer, highest, share, now)

    def _ask_peer(self, peer: _Peer, highest: int, share: int, now: float) -> int:
        most = max(1, min(share, _BATCH_BYTES // self._header.row_size))
        batch = [index for index in peer.rows_left if index < highest][:most]
        if batch:
            peer.batch, peer.answer = batch, "has not answered"
            peer.rows_left = [index for index in peer.rows_left if index not in batch]
            peer.asked_at = now
            self._tasks[asyncio.create_task(self._fetch(peer.member, batch))] = peer
        return len(batch)

    def _next_wake(self, now: float) -> float | None:
        """When something may change by itself; None when nothing is under way and nobody is left to ask."""
        times = [peer.not_before for peer in self._peers if not peer.over and not peer.batch and peer.rows_left]
        if self._tasks:
            times.append(self._deadline)
            times += [peer.asked_at + self._hedge_s for peer in self._tasks.values()]
        return min((time for time in times if time > now), default=None)

    async def _wait(self, seconds: float) -> None:
        if not self._tasks:
            await asyncio.sleep(seconds)
            return
        done, _ = await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            peer = self._tasks.pop(task)
            batch, peer.batch = peer.batch, []
            error = task.exception()
            if isinstance(error, PeerError):
                self._note_failure(peer, batch, error)
            else:
                self._take(peer, batch, task.result())

    def _take(self, peer: _Peer, batch: list[int], answer: _Answer) -> None:
        good = {row.index: row.data for row in answer.proven}
        self._rows.update(good)
        self._on_progress(min(len(self._rows), self._header.k), self._header.k)
        peer.answer = f"served {len(good)} of {len(batch)} rows"
        if answer.num_false:
            peer.answer += f" and {answer.num_false} false ones"
            peer.over = True

    def _note_failure(self, peer: _Peer, batch: list[int], error: PeerError) -> None:
        peer.answer, peer.error, peer.height = str(error), error.error, error.height
        peer.failures += 1
        if error.passing and peer.failures < MAX_FAILURES:
            peer.rows_left = sorted(peer.rows_left + batch)
            peer.not_before = self._clock() + max(_BACKOFF_S * 2**peer.failures, error.retry_after_s)
        else:
            peer.over = True

    async def _fetch(self, member: ServiceMember, batch: list[int]) -> _Answer:
        """What a member answers, checked row by row. Raises: PeerError."""
        query = "&".join(f"index={index}" for index in batch)
        url = f"{blob_url(member, self._header.commitment)}/rows?{query}"
        most = (self._header.row_size + PROOF_BYTES) * len(batch)
        time_left = min(self._timeout_s / 2, self._deadline - self._clock())
        body = await call(self._session, "GET", url, timeout_s=max(0.001, time_left), max_bytes=most)
        return await asyncio.to_thread(self._prove, body, batch)

    def _prove(self, body: bytes, batch: list[int]) -> _Answer:
        try:
            rows = decode(body, ProvenRows)
        except EncodingError as error:
            raise PeerError(f"answered no rows: {error}", passing=False) from error
        header = self._header
        proven = [row for row in rows if row.index in batch and verify_row(header, row.index, row.data, row.proof)]
        return _Answer(proven, len(rows) - len(proven))

    def _failure(self) -> RetrievalFailed:
        """Which of the answers this is, by the stake behind them: a few liars cannot make a blob unknown or pruned."""
        answers = {name_of(peer.member): peer.answer for peer in self._peers}
        name = f"blob {self._header.commitment.hex()}"
        total = self._members.total_stake
        pruned = [peer for peer in self._peers if peer.error == "pruned"]
        if 3 * sum(peer.member.stake for peer in pruned) > total:
            height = sorted(peer.height for peer in pruned)[len(pruned) // 2]
            return BlobPruned(f"{name} was pruned at height {height}", answers, height=height)
        unknown = sum(peer.member.stake for peer in self._peers if peer.error == "unknown")
        if 3 * unknown > 2 * total and not self._rows:
            return BlobUnknown(f"{name} is unknown", answers)
        have, need = len(self._rows), self._header.k
        text = f"{name} is not available now: {have} of {need} rows could be had"
        return BlobUnavailable(text, answers, have=have, need=need)
