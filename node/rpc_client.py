"""JSON-RPC 2.0 over HTTP POST, for our own nodes and for CometBFT's RPC alike."""

import itertools
import json
from typing import Any, Final

import aiohttp

from node.errors import NodeUnreachable, RpcError

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""Many times the largest block or page of a list in JSON; a node that sends more is not ours."""


class RpcConnection:
    """Calls to one endpoint over one aiohttp session (opened on first use, closed by `close`)."""

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float = 10.0,
        session: aiohttp.ClientSession | None = None,
        max_answer_bytes: int | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes or MAX_ANSWER_BYTES
        self._session = session
        self._owns_session = session is None
        self._ids = itertools.count(1)
        self.has_answered = False
        """Whether any answer has come, be it an error."""

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    async def close(self) -> None:
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, method: str, params: dict[str, Any], *, extra_s: float = 0.0) -> Any:
        """The result of one call; `extra_s` is added to the time-out for calls that wait on the other side.

        Raises: RpcError, NodeUnreachable.
        """
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        timeout = aiohttp.ClientTimeout(total=self._timeout_s + extra_s)
        try:
            async with self.session.post(
                self.endpoint, json=request, timeout=timeout, allow_redirects=False
            ) as response:
                body = await _read(self.endpoint, response, self._max_answer_bytes)
                self.has_answered = True
                return _result_of(self.endpoint, response.status, body)
        except TimeoutError as error:
            raise NodeUnreachable(self.endpoint, f"no answer within {timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NodeUnreachable(self.endpoint, str(error) or type(error).__name__) from error


async def _read(endpoint: str, response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            response.close()
            raise NodeUnreachable(endpoint, f"the answer is longer than {limit} bytes")
    return bytes(body)


def _result_of(endpoint: str, status: int, body: bytes) -> Any:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NodeUnreachable(endpoint, f"the answer (HTTP {status}) is not JSON") from error
    if not isinstance(answer, dict) or not ("result" in answer or "error" in answer):
        raise NodeUnreachable(endpoint, f"the answer (HTTP {status}) is not JSON-RPC")
    problem = answer.get("error")
    if not isinstance(problem, dict | None):
        raise NodeUnreachable(endpoint, f"the answer (HTTP {status}) is not JSON-RPC")
    if problem:
        code, message, data = (problem.get(name) for name in ("code", "message", "data"))
        raise RpcError(code if isinstance(code, int) else 0, f"{message}: {data}" if data else str(message))
    return answer.get("result")
