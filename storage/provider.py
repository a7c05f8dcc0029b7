"""Single requests to one provider, with every answer checked and every failure turned into a ProviderError."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
import msgspec

from primitives.deals import segment_count
from primitives.encoding import EncodingError, decode, encode
from primitives.keys import SIGNATURE_BYTES
from storage.errors import ProviderError
from storage.index import Bitmap
from storage.terms import DealTerms
from storage.tree import MAX_BODY_BYTES, Segment, verify_segment

T = TypeVar("T")

AUDIT_BYTES_PER_S: Final = 20 * 1024 * 1024
"""How fast we expect a provider to read a file in full before it signs."""
_SMALL_ANSWER: Final = 16 * 1024
_RETRY_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Waits between tries double from `first_delay_s` to `max_delay_s`, less a random part of up to half."""

    attempts: int = 6
    first_delay_s: float = 0.25
    max_delay_s: float = 8.0

    def delay_s(self, attempt: int, retry_after_s: float | None = None) -> float:
        """How long to wait after try number `attempt` (from 0)."""
        delay = min(self.max_delay_s, self.first_delay_s * float(2**attempt)) * random.uniform(0.5, 1.0)
        return delay if retry_after_s is None else max(delay, min(retry_after_s, self.max_delay_s))

    async def run(self, action: Callable[[], Awaitable[T]]) -> T:
        """`action`, again while it fails with a ProviderError that may pass. Raises: the last ProviderError."""
        for attempt in range(self.attempts - 1):
            try:
                return await action()
            except ProviderError as error:
                if not error.may_retry:
                    raise
                await asyncio.sleep(self.delay_s(attempt, error.retry_after_s))
        return await action()


class _Refusal(msgspec.Struct):
    error: str = ""
    message: str = ""


class _DealAnswer(msgspec.Struct):
    root: str
    size: int
    held: str


class FileAnswer(msgspec.Struct):
    """What a provider says about a file; nothing of it is proven until segments are fetched."""

    height: int
    root: str
    size: int
    num_segments: int
    num_held: int
    complete: bool


class _ReceiptAnswer(msgspec.Struct):
    signature: str


class Provider:
    """One storage node as clients meet it. `url` is its base address, such as http://10.0.0.1:26602."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._timeout_s = timeout_s

    async def held(self, deal: DealTerms) -> Bitmap:
        """Which segments of the deal's file it says it has. A deal it does not know yet may be known a block later."""
        total = segment_count(deal.size)
        try:
            raw = await self._request("GET", f"deals/{deal.id}", cap=_SMALL_ANSWER + total)
        except ProviderError as error:
            error.may_retry = error.may_retry or error.code == "unknown"
            raise
        answer = self._decode(raw, _DealAnswer)
        if (answer.root, answer.size) != (deal.root.hex(), deal.size):
            raise ProviderError(self.url, f"it knows deal {deal.id} with another root or size")
        try:
            return Bitmap.from_bytes(total, bytes.fromhex(answer.held))
        except ValueError as error:
            raise ProviderError(self.url, f"its list of held segments is malformed: {error}") from error

    async def put_segment(self, deal_id: int, index: int, segment: Segment) -> None:
        """Send one segment."""
        await self._request("PUT", f"deals/{deal_id}/segments/{index}", data=encode(segment), cap=_SMALL_ANSWER)

    async def receipt(self, deal: DealTerms) -> bytes:
        """Ask for its signature that it holds every byte, 64 bytes, not yet checked against a key."""
        patience_s = self._timeout_s + deal.size / AUDIT_BYTES_PER_S
        raw = await self._request("POST", f"deals/{deal.id}/receipt", cap=_SMALL_ANSWER, timeout_s=patience_s)
        try:
            signature = bytes.fromhex(self._decode(raw, _ReceiptAnswer).signature)
        except ValueError as error:
            raise ProviderError(self.url, "its receipt is not hexadecimal") from error
        if len(signature) != SIGNATURE_BYTES:
            raise ProviderError(self.url, f"its receipt has {len(signature)} bytes; it should have {SIGNATURE_BYTES}")
        return signature

    async def file(self, root: bytes) -> FileAnswer:
        """What it says about a file."""
        return self._decode(await self._request("GET", f"files/{root.hex()}", cap=4 * 1024 * 1024), FileAnswer)

    async def segment(self, root: bytes, size: int, index: int) -> Segment:
        """One segment, proven against (root, size)."""
        raw = await self._request("GET", f"files/{root.hex()}/segments/{index}", cap=MAX_BODY_BYTES)
        try:
            segment = decode(raw, Segment)
        except EncodingError as error:
            raise ProviderError(self.url, f"segment {index} is short or malformed: {error}") from error
        if not verify_segment(root, size, index, segment):
            raise ProviderError(self.url, f"the bytes of segment {index} do not prove against the root")
        return segment

    async def _request(
        self, method: str, path: str, *, cap: int, data: bytes | None = None, timeout_s: float | None = None
    ) -> bytes:
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with self._session.request(
                method,
                f"{self.url}/storage/v1/{path}",
                data=data,
                headers={"Accept-Encoding": "identity"},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=patience_s),
            ) as response:
                body = await _read_capped(response, cap)
                if response.status == 200 and body is not None:
                    return body
                raise self._refused(response, body)
        except TimeoutError as error:
            raise ProviderError(self.url, f"no answer within {patience_s:g} s", may_retry=True) from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError) as error:  # the last: no host name
            raise ProviderError(self.url, "this is not an http address") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ProviderError(self.url, f"connection failed: {reason}", may_retry=True) from error

    def _refused(self, response: aiohttp.ClientResponse, body: bytes | None) -> ProviderError:
        if body is None:
            return ProviderError(self.url, f"its answer (status {response.status}) is longer than it may be")
        try:
            refusal = msgspec.json.decode(body, type=_Refusal)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            refusal = _Refusal()
        wait = response.headers.get("Retry-After", "")
        return ProviderError(
            self.url,
            (refusal.message or f"it answered with status {response.status}")[:500],
            code=refusal.error,
            may_retry=response.status in _RETRY_STATUS,
            retry_after_s=float(wait) if wait.isdecimal() and len(wait) < 6 else None,
        )

    def _decode(self, raw: bytes, wanted: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=wanted)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ProviderError(self.url, f"its answer is malformed: {error}") from error


async def _read_capped(response: aiohttp.ClientResponse, cap: int) -> bytes | None:
    """The body, or None when it has more than `cap` bytes; no more than that is kept."""
    parts: list[bytes] = []
    room = cap
    async for part in response.content.iter_any():
        room -= len(part)
        if room < 0:
            return None
        parts.append(part)
    return b"".join(parts)
