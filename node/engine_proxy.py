"""`POST /engine`: the few calls of CometBFT's RPC that verifying headers takes, read-only, open to anyone.

CometBFT's own RPC stays on loopback. What its light client and its state sync ask a server for (`commit`, `validators`,
`consensus_params`, `header`, `status`) is passed on from here with its parameters checked one by one; nothing else is.
Forms and texts of answers are CometBFT's own (v0.38 `light/provider/http` tells heights that are gone from those to
come by the text of the error), so ``{services}/engine`` can stand in `rpc_servers` of CometBFT's configuration.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from node import errors
from node.chain import Engine
from node.config import LimitsConfig
from node.engine_files import ENGINE_PATH
from node.errors import EngineRefused, NodeUnreachable, RpcError
from node.rate import RateLimiter
from node.rpc_http import BODY_S, PROXY_HEADERS, is_loopback

MAX_BODY_BYTES: Final = 4096
"""Many times the longest call of CometBFT's light client."""
MAX_AT_ONCE: Final = 16
"""Calls passed on at the same time; the next ones wait."""
MAX_HEIGHT: Final = 2**63 - 1
MAX_PAGE: Final = 100
PER_PAGE: Final = 100
"""Most validators of one page, as in CometBFT."""
MAX_ERROR_CHARACTERS: Final = 500

Take = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest value of a parameter that is a whole number."""

    low: int
    high: int


HEIGHT: Final = Bounds(1, MAX_HEIGHT)
METHODS: Final[Mapping[str, Mapping[str, Bounds]]] = {
    "commit": {"height": HEIGHT},
    "header": {"height": HEIGHT},
    "consensus_params": {"height": HEIGHT},
    "validators": {"height": HEIGHT, "page": Bounds(1, MAX_PAGE), "per_page": Bounds(1, PER_PAGE)},
    "status": {},
}
"""Each method with its parameters; all of them may be left out."""


class EngineProxy:
    """The route. Calls from loopback are not limited, as for /rpc; those of others are, by address."""

    def __init__(self, engine: Engine, limits: LimitsConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._limiter = RateLimiter(limits.calls_per_s, limits.calls_burst, clock)
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        return [web.post(ENGINE_PATH, self.post)]

    async def post(self, request: web.Request) -> web.StreamResponse:
        """One call; never a batch."""
        if not self._may_call(request):
            return _failure(None, errors.RATE_LIMITED, "too many calls from this address; slow down", status=429)
        try:
            async with asyncio.timeout(BODY_S):
                body = await _read_body(request)
        except TimeoutError:
            return _failure(None, errors.INVALID_REQUEST, f"the body did not come within {BODY_S:g} s", status=408)
        if body is None:
            text = f"the body is larger than {MAX_BODY_BYTES} bytes"
            return _failure(None, errors.INVALID_REQUEST, text, status=413)
        try:
            id_, method, params = read_call(body)
        except BadCall as error:
            return _failure(error.id, error.code, error.message)
        return await self._answer(id_, self._pass_on(method, params))

    async def _pass_on(self, method: str, params: dict[str, str]) -> Any:
        async with self._room:
            return await self._engine.call(method, **params)

    async def _answer(self, id_: int | str | None, work: Awaitable[Any]) -> web.Response:
        try:
            result = await work
        except EngineRefused as error:
            return _failure(id_, errors.INTERNAL_ERROR, "Internal error", data=error.reason)
        except NodeUnreachable:
            text = "the chain of this node does not answer; it may be starting. Try again."
            return _failure(id_, errors.NOT_READY, text)
        return web.json_response({"jsonrpc": "2.0", "id": id_, "result": result})

    def _may_call(self, request: web.Request) -> bool:
        address = request.remote or ""
        direct = not any(name in request.headers for name in PROXY_HEADERS)
        return (is_loopback(address) and direct) or self._limiter.take(address)


class BadCall(RpcError):
    """A call that is not passed on; `id` is the caller's own where it could be read."""

    def __init__(self, code: int, message: str, id_: int | str | None = None) -> None:
        super().__init__(code, message)
        self.id = id_


def read_call(body: bytes) -> tuple[int | str | None, str, dict[str, str]]:
    """(id, method, parameters as CometBFT takes them) of one JSON-RPC 2.0 call.

    Raises: BadCall.
    """
    try:
        call = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadCall(errors.PARSE_ERROR, "the body is not JSON in UTF-8") from error
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0":
        raise BadCall(errors.INVALID_REQUEST, 'the body should be one call, an object with jsonrpc "2.0"')
    id_ = call.get("id")
    if isinstance(id_, bool) or not isinstance(id_, int | str | None):
        raise BadCall(errors.INVALID_REQUEST, "id should be a text, a whole number or null")
    method, params = call.get("method"), call.get("params") or {}
    if not isinstance(method, str) or method not in METHODS:
        text = f"there is no method {str(method)[:64]!r} here; there are {', '.join(sorted(METHODS))}"
        raise BadCall(errors.METHOD_NOT_FOUND, text, id_)
    if not isinstance(params, dict):
        raise BadCall(errors.INVALID_PARAMS, "params should be an object", id_)
    try:
        return id_, method, _checked(METHODS[method], params)
    except RpcError as error:
        raise BadCall(error.code, f"{method}: {error.message}", id_) from error


def _checked(known: Mapping[str, Bounds], params: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in params.items():
        bounds = known.get(name)
        if bounds is None:
            raise RpcError(errors.INVALID_PARAMS, f"there is no parameter {name[:64]!r}")
        if value is not None:
            found[name] = str(_whole_number(name, value, bounds))
    return found


def _whole_number(name: str, value: object, bounds: Bounds) -> int:
    """CometBFT's clients send whole numbers as text, people as numbers."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(MAX_HEIGHT)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not bounds.low <= value <= bounds.high:
        raise RpcError(errors.INVALID_PARAMS, f"{name} should be a whole number of {bounds.low} to {bounds.high}")
    return value


async def _read_body(request: web.Request) -> bytes | None:
    """The body, or None as soon as it is too large."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)


def _failure(
    id_: int | str | None, code: int, message: str, *, data: str | None = None, status: int = 200
) -> web.Response:
    problem: dict[str, Any] = {"code": code, "message": message[:MAX_ERROR_CHARACTERS]}
    if data is not None:
        problem["data"] = data[:MAX_ERROR_CHARACTERS]
    return web.json_response({"jsonrpc": "2.0", "id": id_, "error": problem}, status=status)
