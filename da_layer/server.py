"""The row server: HTTP under /da/v1 (docs/da.md). A node takes rows, attests that it holds them, and serves them.

Four answers tell readers apart what happened: 404 unknown, 410 pruned (with the height), 503 not available just now,
200. Everything else that is refused gets a 4xx or 507 with the reason. Errors are JSON {error, detail}.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import msgspec
import structlog
from aiohttp import web

from da_layer.admission import DaChain, Refused, assignment, check_honoured, check_row_set, check_signed_promise
from da_layer.errors import ChainUnavailable, StoreFull, StoreUnavailable, WrongRow
from da_layer.files import Pruned
from da_layer.limits import ByteBudget, DaLimits, Lease
from da_layer.store import Held, RowStore
from da_layer.wire import CONTENT_TYPE, PREFIX, PROOF_BYTES, BlobStatus, PutRequest
from primitives.blobs import MAX_ROWS, Attestation
from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import HASH_BYTES
from primitives.keys import PrivateKey

__all__ = ["DaChain", "DaLimits", "da_routes"]


_READ_BYTES = 256 * 1024
_log = structlog.get_logger()


def da_routes(
    store: RowStore, *, chain_id: str, member_key: PrivateKey, chain: DaChain, limits: DaLimits | None = None
) -> list[web.RouteDef]:
    """Routes of one node that signs with `member_key` (its service key). Add them to an aiohttp application."""
    server = _RowServer(store, chain_id, member_key, chain, limits or DaLimits())
    return [
        web.put(PREFIX + "/{commitment}", server.put),
        web.get(PREFIX + "/{commitment}", server.status),
        web.get(PREFIX + "/{commitment}/rows", server.rows),
    ]


Handler = Callable[["_RowServer", web.Request], Awaitable[web.StreamResponse]]


def _errors_as_answers(handler: Handler) -> Handler:
    """Turn the errors that a handler may raise into JSON answers."""

    @wraps(handler)
    async def answered(self: "_RowServer", request: web.Request) -> web.StreamResponse:
        response = await answer_or_error(self, request)
        self.counters.requests_refused += response.status >= 400
        return response

    async def answer_or_error(self: "_RowServer", request: web.Request) -> web.StreamResponse:
        try:
            return await handler(self, request)
        except Refused as refused:
            return _error(refused)
        except WrongRow as error:
            return _error(Refused(422, "bad_row", str(error)))
        except StoreFull as error:
            return _error(Refused(507, "disk_full", str(error)))
        except StoreUnavailable as error:
            _log.error("row store failed", detail=str(error))
            return _error(Refused(503, "store_unavailable", "the rows cannot be read or written", retry_after_s=10))
        except ChainUnavailable as error:
            return _error(Refused(503, "chain_unavailable", str(error), retry_after_s=self.limits.retry_after_s))

    return answered


class _RowServer:
    def __init__(
        self, store: RowStore, chain_id: str, member_key: PrivateKey, chain: DaChain, limits: DaLimits
    ) -> None:
        self._store = store
        self._chain_id = chain_id
        self._key = member_key
        self._chain = chain
        self.limits = limits
        self.counters = store.counters
        self._budget = ByteBudget(limits.in_flight_bytes)
        self._puts = 0

    @_errors_as_answers
    async def put(self, request: web.Request) -> web.StreamResponse:
        """Check a promise and this node's rows, store them, answer the Attestation. Safe to repeat."""
        commitment = _commitment(request)
        length = self._announced_length(request)
        if self._puts >= self.limits.max_puts:
            raise self._busy("too many uploads are under way")
        self._puts += 1
        try:
            with self._budget.lease() as lease:
                body = await self._read_body(request, length, lease)
                return await self._take_rows(commitment, body)
        finally:
            self._puts -= 1

    @_errors_as_answers
    async def status(self, request: web.Request) -> web.StreamResponse:
        """Answer the promise and the indices of the rows that are here."""
        held = self._held(_commitment(request))
        return web.Response(body=encode(BlobStatus(held.promise, held.indices)), content_type=CONTENT_TYPE)

    @_errors_as_answers
    async def rows(self, request: web.Request) -> web.StreamResponse:
        """Answer those of the rows `index=..` (default: all) that are here, with proofs, as far as they fit."""
        commitment = _commitment(request)
        wanted = _indices(request)
        held = self._held(commitment)
        here = [index for index in held.indices if wanted is None or index in wanted]
        if not here:
            raise self._unavailable("none of these rows is held here")
        row_bytes = held.promise.header.row_size + PROOF_BYTES
        here = here[: max(1, self.limits.max_answer_bytes // row_bytes)]
        with self._budget.lease() as lease:
            if not lease.take(row_bytes * len(here), leaving=self.limits.in_flight_bytes // 2):
                raise self._busy("too many answers are under way")
            found = await asyncio.to_thread(self._store.read, commitment, here)
            if not found:
                self._held(commitment)
                raise self._unavailable("these rows were held here and are damaged")
            body = encode(found)
            self.counters.rows_served += len(found)
            self.counters.bytes_served += len(body)
            return await self._send(request, body)

    async def _take_rows(self, commitment: bytes, body: bytearray) -> web.StreamResponse:
        try:
            wanted = await asyncio.to_thread(decode, memoryview(body), PutRequest)
        except EncodingError as error:
            raise Refused(400, "malformed", str(error)) from error
        promise = wanted.promise
        check_signed_promise(wanted.signed_promise, commitment, chain_id=self._chain_id, height=self._chain.height())
        admitted = await assignment(promise, self._key.public_key, self._chain)
        if not self._store.holds(promise):
            check_row_set(wanted, admitted.indices)
            await check_honoured(promise, self._chain)
            await asyncio.to_thread(self._store.put, wanted.signed_promise, wanted.rows)
        word = Attestation(admitted.member.operator, self._key.sign(promise.attestation_digest))
        return web.Response(body=encode(word), content_type=CONTENT_TYPE)

    def _announced_length(self, request: web.Request) -> int:
        length = request.content_length
        if length is None:
            raise Refused(411, "length_required", "an upload should carry Content-Length")
        if length > self.limits.max_body_bytes:
            raise Refused(413, "too_large", f"{length} bytes; at most {self.limits.max_body_bytes} are taken")
        return length

    async def _read_body(self, request: web.Request, length: int, lease: Lease) -> bytearray:
        """The body, as long as it keeps pace: time is given for what has come, not for what was announced, so that
        silent senders do not hold the places of others."""
        body = bytearray()
        try:
            async with asyncio.timeout(None) as patience:
                started = asyncio.get_running_loop().time()
                patience.reschedule(started + self.limits.time_for(0))
                async for piece in request.content.iter_chunked(_READ_BYTES):
                    if len(body) + len(piece) > length:
                        raise Refused(400, "malformed", f"more than the announced {length} bytes")
                    if not lease.take(len(piece)):
                        raise self._busy("too many bytes are under way")
                    body += piece
                    patience.reschedule(started + self.limits.time_for(len(body)))
        except TimeoutError as error:
            raise Refused(408, "too_slow", f"{len(body)} of {length} bytes came in time") from error
        except (web.RequestPayloadError, OSError) as error:
            raise Refused(400, "malformed", f"the upload broke off: {error}") from error
        return body

    async def _send(self, request: web.Request, body: bytes) -> web.StreamResponse:
        """Send while the caller still holds the lease; cut off readers who do not keep pace with the time limit."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        response.content_length = len(body)
        view = memoryview(body if request.method == "GET" else b"")
        try:
            async with asyncio.timeout(None) as patience:
                started = asyncio.get_running_loop().time()
                patience.reschedule(started + self.limits.time_for(0))
                await response.prepare(request)
                for start in range(0, len(view), _READ_BYTES):
                    await response.write(view[start : start + _READ_BYTES])
                    patience.reschedule(started + self.limits.time_for(start))
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        except OSError as error:
            _log.debug("reader went away", detail=str(error))
        return response

    def _held(self, commitment: bytes) -> Held:
        status = self._store.status(commitment)
        if status is None:
            raise Refused(404, "unknown", "this node never held the blob")
        if isinstance(status, Pruned):
            raise Refused(
                410,
                "pruned",
                f"held until height {status.expiry_height}, deleted at height {status.pruned_height}",
                height=status.pruned_height,
            )
        return status

    def _busy(self, detail: str) -> Refused:
        self.counters.busy_refused += 1
        return Refused(503, "busy", detail, retry_after_s=self.limits.retry_after_s)

    def _unavailable(self, detail: str) -> Refused:
        return Refused(503, "unavailable", detail, retry_after_s=self.limits.retry_after_s)


def _commitment(request: web.Request) -> bytes:
    text = request.match_info["commitment"]
    if len(text) != 2 * HASH_BYTES or not set(text) <= set("0123456789abcdef"):
        raise Refused(400, "malformed", f"a commitment is {2 * HASH_BYTES} characters of 0-9 a-f")
    return bytes.fromhex(text)


def _indices(request: web.Request) -> set[int] | None:
    texts = request.query.getall("index", [])
    if not texts:
        return None
    if len(texts) > MAX_ROWS or not all(text.isascii() and text.isdecimal() and len(text) <= 3 for text in texts):
        raise Refused(400, "malformed", f"index should be a row number, at most {MAX_ROWS} times")
    return {int(text) for text in texts}


def _error(refused: Refused) -> web.Response:
    headers = {"Retry-After": str(refused.retry_after_s)} if refused.retry_after_s else {}
    body = msgspec.json.encode(refused.answer)
    return web.Response(body=body, status=refused.status, headers=headers, content_type="application/json")
