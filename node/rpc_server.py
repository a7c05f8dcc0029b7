"""JSON-RPC 2.0: bytes in, bytes out. The HTTP and WebSocket faces are in node.rpc_http and node.rpc_socket.

Single calls, batches and notifications; parameters by name or by position; the standard error codes.
"""

import json
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from node import errors
from node.context import NodeContext
from node.errors import EngineRefused, NodeUnreachable, RpcError
from node.jsonform import JsonFormError, from_json, to_json
from node.openrpc import DISCOVER, describe
from node.rpc_methods import METHODS, check_allowed

logger = logging.getLogger("outerstep.rpc")

MAX_MESSAGE_CHARACTERS: Final = 500
TOO_MANY_CALLS: Final = (errors.RATE_LIMITED, "too many calls from this address; slow down")


@dataclass(slots=True)
class Caller:
    """Who calls, as far as it matters."""

    from_loopback: bool
    take_call: Callable[[], bool]
    """Whether the caller's allowance has room for one more call."""
    extra: dict[str, Callable[[Any], Awaitable[Any]]]
    """Methods of this connection alone (subscriptions), taking raw parameters."""


class RpcServer:
    """Answers request bodies for one node."""

    def __init__(self, node: NodeContext, count: Callable[[str, int], None]) -> None:
        """`count` is told the method (or "unknown") and the error code (0: none) of every call."""
        self._node = node
        self._count = count
        self._document: Any = None

    async def handle(self, body: bytes, caller: Caller) -> bytes | None:
        """The answer to a body, or None when nothing should be said (notifications only).

        A body counts as one call before it is looked at, so that no garbage is parsed for nothing; its first call is
        then paid for.
        """
        if not caller.take_call():
            return _encode(_failure(None, *TOO_MANY_CALLS))
        try:
            document = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return _encode(_failure(None, errors.PARSE_ERROR, "the body is not JSON in UTF-8"))
        if isinstance(document, list):
            return await self._handle_batch(document, caller)
        answer = await self._handle_one(document, caller, paid=True)
        return None if answer is None else _encode(answer)

    async def _handle_batch(self, calls: list[Any], caller: Caller) -> bytes | None:
        limit = self._node.config.limits.batch
        if not calls:
            return _encode(_failure(None, errors.INVALID_REQUEST, "the batch is empty"))
        if len(calls) > limit:
            return _encode(
                _failure(None, errors.INVALID_REQUEST, f"the batch has {len(calls)} calls; at most {limit} are allowed")
            )
        answers = [await self._handle_one(call, caller, paid=index == 0) for index, call in enumerate(calls)]
        said = [answer for answer in answers if answer is not None]
        return _encode(said) if said else None

    async def _handle_one(self, request: Any, caller: Caller, *, paid: bool) -> dict[str, Any] | None:
        problem = _check_request(request)
        if problem is not None:
            self._count("unknown", errors.INVALID_REQUEST)
            return _failure(None, errors.INVALID_REQUEST, problem)
        is_notification = "id" not in request
        id_, name = request.get("id"), request["method"]
        try:
            if not paid and not caller.take_call():
                raise RpcError(*TOO_MANY_CALLS)
            result = await self._call(name, request.get("params", {}), caller)
            answer = {"jsonrpc": "2.0", "id": id_, "result": result}
        # The standard asks for -32603 whatever went wrong inside one call, and the other calls of a batch or a
        # connection must go on: so this place, and no other, catches everything. It hides nothing: see _explain.
        except Exception as error:  # noqa: BLE001
            answer = _failure(id_, *_explain(name, error))
        code = answer["error"]["code"] if "error" in answer else 0
        self._count(name if name in METHODS or name == DISCOVER else "unknown", code)
        return None if is_notification else answer

    async def _call(self, name: str, params: Any, caller: Caller) -> Any:
        if name in caller.extra:
            return await caller.extra[name](params)
        if name == DISCOVER:
            self._document = self._document or describe()
            return self._document
        method = METHODS.get(name)
        if method is None:
            raise RpcError(errors.METHOD_NOT_FOUND, f"there is no method {name[:64]!r}; {DISCOVER} lists all")
        check_allowed(method, from_loopback=caller.from_loopback)
        read: Any = from_json(by_name(params, method.params), method.params)
        return to_json(await method.handler(self._node, read))


def _explain(name: str, error: Exception) -> tuple[int, str]:
    """Code and message for the caller; what callers cannot mend is logged."""
    if isinstance(error, EngineRefused):
        logger.warning("%s: %s", name[:64], error)
    if isinstance(error, RpcError):
        return error.code, error.message
    if isinstance(error, JsonFormError):
        return errors.INVALID_PARAMS, str(error)
    if isinstance(error, NodeUnreachable):
        message = f"the chain of this node does not answer ({error.reason}); it may be starting. Try again."
        return errors.NOT_READY, message
    logger.error("%s failed in a way that it should not", name[:64], exc_info=error)
    return errors.INTERNAL_ERROR, "internal error; the node's log has the details"


def by_name(params: Any, form: type[msgspec.Struct]) -> dict[str, Any]:
    """Parameters as an object; those given by position take the fields in their order.

    Raises: RpcError INVALID_PARAMS.
    """
    if isinstance(params, dict):
        return params
    names = form.__struct_fields__
    if len(params) > len(names):
        raise RpcError(errors.INVALID_PARAMS, f"{len(params)} parameters; there are at most {len(names)}")
    return dict(zip(names, params, strict=False))


def _check_request(request: Any) -> str | None:
    """What is wrong with one request object, or None."""
    if not isinstance(request, dict):
        return "a call should be an object"
    if request.get("jsonrpc") != "2.0":
        return 'jsonrpc should be "2.0"'
    if not isinstance(request.get("method"), str):
        return "method should be a text"
    id_ = request.get("id")
    if isinstance(id_, bool) or not isinstance(id_, str | int | float | None) or id_ in (math.inf, -math.inf):
        return "id should be a text, a number or null"
    if not isinstance(request.get("params", {}), dict | list):
        return "params should be an object or an array"
    return None


def _failure(id_: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message[:MAX_MESSAGE_CHARACTERS]}}


def _encode(answer: Any) -> bytes:
    """JSON in ASCII: lone surrogates that came in as an id go out escaped as they came."""
    return json.dumps(answer, separators=(",", ":")).encode("ascii")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
