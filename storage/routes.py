"""The storage service over HTTP, below /storage/v1 (docs/storage.md).

Segments travel as canonical bytes, everything else as JSON. A refusal is JSON too: {"error": a stable word,
"message": for people}, and "gone_height" where the status is 410.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from primitives.deals import SEGMENT_BYTES, segment_count
from primitives.encoding import decode
from storage.errors import (
    BadRequest,
    LengthNeeded,
    RequestRefused,
    TooLarge,
    TooSlow,
)
from storage.service import StorageService
from storage.terms import DealTerms
from storage.tree import MAX_BODY_BYTES, Segment

log = logging.getLogger(__name__)

PREFIX: Final = "/storage/v1"
MAX_PAGE: Final = 1000
SEGMENT_TYPE: Final = "application/vnd.outerstep.segment"

_ROOT: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def storage_routes(service: StorageService) -> list[web.RouteDef]:
    """Routes to add to an aiohttp application."""
    faces = _Faces(service)
    return [
        web.get(f"{PREFIX}/deals", _answering(faces.list_deals)),
        web.get(f"{PREFIX}/deals/{{deal_id}}", _answering(faces.deal)),
        web.put(f"{PREFIX}/deals/{{deal_id}}/segments/{{index}}", _answering(faces.put_segment)),
        web.post(f"{PREFIX}/deals/{{deal_id}}/receipt", _answering(faces.receipt)),
        web.get(f"{PREFIX}/files/{{root}}", _answering(faces.file)),
        web.get(f"{PREFIX}/files/{{root}}/segments/{{index}}", _answering(faces.get_segment)),
        web.get(f"{PREFIX}/files/{{root}}/bytes", _answering(faces.get_bytes), allow_head=False),
    ]


def _answering(handler: Handler) -> Handler:
    """Turn our refusals into HTTP answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except RequestRefused as refusal:
            body: dict[str, object] = {"error": refusal.code, "message": str(refusal)}
            if refusal.gone_height is not None:
                body["gone_height"] = refusal.gone_height
            response = web.json_response(body, status=refusal.status)
            if refusal.retry_after_s is not None:
                response.headers["Retry-After"] = str(refusal.retry_after_s)
            return response

    return answer


class _Faces:
    def __init__(self, service: StorageService) -> None:
        self._service = service

    async def list_deals(self, request: web.Request) -> web.Response:
        after = _number(request.query.get("after", "0"), "after")
        limit = min(_number(request.query.get("limit", "100"), "limit"), MAX_PAGE)
        page = await self._service.list_deals(after=after, limit=limit + 1)
        deals = [self._describe(terms) for terms in page[:limit]]
        following = page[limit - 1].id if limit and len(page) > limit else None
        return web.json_response({"height": self._service.height, "deals": deals, "next": following})

    async def deal(self, request: web.Request) -> web.Response:
        terms = await self._service.deal(_number(request.match_info["deal_id"], "deal id"))
        held = self._service.held(terms).to_bytes().hex()
        return web.json_response({"height": self._service.height, **self._describe(terms), "held": held})

    async def file(self, request: web.Request) -> web.Response:
        terms = await self._service.file(_root(request))
        held = self._service.held(terms)
        return web.json_response(
            {
                "height": self._service.height,
                "root": terms.root.hex(),
                "size": terms.size,
                "num_segments": held.total,
                "num_held": held.count,
                "complete": self._service.is_complete(terms),
                "held": held.to_bytes().hex(),
            }
        )

    async def put_segment(self, request: web.Request) -> web.Response:
        deal_id = _number(request.match_info["deal_id"], "deal id")
        index = _number(request.match_info["index"], "segment index")
        with self._service.uploads:
            await self._service.deal(deal_id)
            stored = await self._service.put_segment(deal_id, index, await self._body(request))
        return web.json_response({"stored": stored})

    async def receipt(self, request: web.Request) -> web.Response:
        deal_id = _number(request.match_info["deal_id"], "deal id")
        signature = await self._service.receipt(deal_id)
        answer = {"deal_id": deal_id, "operator": self._service.operator.hex(), "signature": signature.hex()}
        return web.json_response(answer)

    async def get_segment(self, request: web.Request) -> web.Response:
        root, index = _root(request), _number(request.match_info["index"], "segment index")
        with self._service.reads:
            body = await self._service.read_segment(root, index)
        return web.Response(body=body, content_type=SEGMENT_TYPE)

    async def get_bytes(self, request: web.Request) -> web.StreamResponse:
        """The file itself, or a range of it, for tools that trust this node: the node checks, the reader cannot."""
        root = _root(request)
        terms = await self._service.file(root)
        first, end, status = _wanted_range(request, terms.size)
        headers = {"Accept-Ranges": "bytes", "ETag": f'"{root.hex()}"', "Content-Type": "application/octet-stream"}
        if status == 416:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{terms.size}"})
        if status == 206:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{terms.size}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = end - first
        with self._service.reads:
            data = await self._piece(root, first, end)
        await response.prepare(request)
        try:
            while data:
                async with asyncio.timeout(self._service.limits.body_timeout_s):
                    await response.write(data)
                first += len(data)
                data = await self._piece(root, first, end)
            await response.write_eof()
        except (RequestRefused, TimeoutError) as error:
            # The status has been sent, so all that can still be said is that this is not the whole answer.
            log.info("storage: a read of %s was cut at byte %d: %s", root.hex(), first, error)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _piece(self, root: bytes, first: int, end: int) -> bytes:
        """Bytes from `first` to the end of its segment, or to `end` when that comes first; none from `end` on."""
        if first >= end:
            return b""
        index, skip = divmod(first, SEGMENT_BYTES)
        segment = decode(await self._service.read_segment(root, index), Segment)
        return segment.data[skip : skip + end - first]

    async def _body(self, request: web.Request) -> bytes:
        length = request.content_length
        if length is None:
            raise LengthNeeded("say the length of the body in Content-Length")
        if length > MAX_BODY_BYTES:
            raise TooLarge(f"{length} bytes; a segment with its proof has at most {MAX_BODY_BYTES}")
        try:
            async with asyncio.timeout(self._service.limits.body_timeout_s):
                return await request.content.readexactly(length)
        except TimeoutError as error:
            raise TooSlow(f"the body did not arrive in {self._service.limits.body_timeout_s:g} s") from error
        except asyncio.IncompleteReadError as error:
            raise BadRequest(f"the body ended after {len(error.partial)} of {length} bytes") from error

    def _describe(self, terms: DealTerms) -> dict[str, Any]:
        return {
            "id": terms.id,
            "root": terms.root.hex(),
            "size": terms.size,
            "tier": terms.tier,
            "status": terms.status,
            "end_height": terms.end_height,
            "owner": terms.owner.hex(),
            "series": terms.series,
            "num_segments": segment_count(terms.size),
            "num_held": self._service.num_held(terms),
            "complete": self._service.is_complete(terms),
        }


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f"{name} is {text[:40]!r}; it should be a whole number of at most 18 digits")
    return int(text)


def _root(request: web.Request) -> bytes:
    text = request.match_info["root"]
    if not _ROOT.fullmatch(text):
        raise BadRequest(f"root is {text[:80]!r}; it should be 64 hexadecimal digits in lower case")
    return bytes.fromhex(text)


def _wanted_range(request: web.Request, size: int) -> tuple[int, int, int]:
    """(first byte, byte after the last, HTTP status) for a Range header of one range; others are ignored (RFC 9110)."""
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if match is None or match.groups() == ("", ""):
        return 0, size, 200
    first_text, last_text = match.groups()
    if not first_text:
        first, end = max(0, size - int(last_text)), size
    else:
        first = int(first_text)
        end = min(size, int(last_text) + 1) if last_text else size
        if last_text and int(last_text) < first:
            return 0, size, 200
    return (first, end, 206) if first < end else (0, 0, 416)
