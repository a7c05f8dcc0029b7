"""One HTTP call to a row server: bounded in time and in bytes, errors sorted into "may work later" and "will not"."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from da_layer.coding import Row
from da_layer.wire import CONTENT_TYPE, PREFIX, ErrorAnswer, in_small_pieces
from primitives.blobs import ServiceMember
from primitives.keys import format_address

MAX_ERROR_BYTES: Final = 4096
MAX_RETRY_AFTER_S: Final = 5.0
_NUMBER = re.compile("[0-9]{1,6}")
_SHOWN_CHARACTERS: Final = 300
_READ_BYTES: Final = 256 * 1024
_WORTH_REPEATING: Final = frozenset({408, 429, 500, 502, 503, 504})

NO_SERVICE: Final = "has registered no service"

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all)."""


class PeerError(Exception):
    """A call without the wanted answer. `passing`: the same call may work later."""

    def __init__(self, text: str, *, passing: bool, error: str = "", height: int = 0, retry_after_s: float = 0) -> None:
        super().__init__(text)
        self.passing = passing
        self.error = error
        """The server's word for it, such as `unknown` or `pruned`; empty when there was no proper answer."""
        self.height = height
        self.retry_after_s = retry_after_s


def name_of(member: ServiceMember) -> str:
    """How errors name a member."""
    return f"{format_address(member.operator)} at {member.url}" if member.url else format_address(member.operator)


def blob_url(member: ServiceMember, commitment: bytes) -> str:
    return f"{member.url.rstrip('/')}{PREFIX}/{commitment.hex()}"


async def call(
    session: ClientSession,
    method: str,
    url: str,
    *,
    timeout_s: float,
    max_bytes: int,
    body: Sequence[Row] | None = None,
) -> bytes:
    """The body of a 200 answer. `body` is sent in small pieces, without copying it as a whole.

    Raises: PeerError, whatever the peer does.
    """
    if session.closed:
        raise PeerError("the session is closed", passing=False)
    headers = {"Accept": CONTENT_TYPE, "Accept-Encoding": "identity"}
    if body is not None:
        headers |= {"Content-Type": CONTENT_TYPE, "Content-Length": str(sum(len(piece) for piece in body))}
    data = None if body is None else _stream(body)
    timeout = ClientTimeout(total=timeout_s)
    try:
        async with session.request(
            method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise await _refusal(response)
            return await _read(response, max_bytes)
    except TimeoutError as error:
        raise PeerError(f"no answer within {timeout_s:.1f} s", passing=True) from error
    except (ClientError, OSError, ValueError) as error:
        raise PeerError(f"{type(error).__name__}: {error}", passing=True) from error


async def _stream(pieces: Sequence[Row]) -> AsyncIterator[Row]:
    for piece in in_small_pieces(pieces):
        yield piece


async def _read(response: ClientResponse, max_bytes: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(_READ_BYTES):
        body += piece
        if len(body) > max_bytes:
            response.close()
            raise PeerError(f"the answer is longer than {max_bytes} bytes", passing=False)
    return bytes(body)


async def _refusal(response: ClientResponse) -> PeerError:
    passing = response.status in _WORTH_REPEATING
    try:
        answer = msgspec.json.decode(await _read(response, MAX_ERROR_BYTES), type=ErrorAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return PeerError(f"HTTP status {response.status}", passing=passing)
    retry_after = response.headers.get("Retry-After", "")
    return PeerError(
        _printable(f"{answer.error}: {answer.detail}"),
        passing=passing,
        error=answer.error,
        height=answer.height,
        retry_after_s=min(float(retry_after), MAX_RETRY_AFTER_S) if _NUMBER.fullmatch(retry_after) else 0.0,
    )


def _printable(text: str) -> str:
    """A peer's words as they may stand in logs and on terminals."""
    return "".join(character if character.isprintable() else "?" for character in text[:_SHOWN_CHARACTERS])
