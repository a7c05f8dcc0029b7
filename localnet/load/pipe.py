"""One connection to CometBFT's RPC on which prepared requests follow each other without waiting for answers."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from localnet.load.answers import AnswerError, AnswerParser
from localnet.load.errors import LoadError

MOST_UNANSWERED: Final = 8
"""Requests on the way on one connection: enough to keep the other side busy, and no flood that hides how it does."""
_ERROR: Final = b'"error":'
CLOSED: Final = "CometBFT's RPC closed a connection without answering"
MAX_REASON_CHARACTERS: Final = 160


class Pipe(asyncio.Protocol):
    """Sends, and counts what CometBFT refuses (a full mempool, say)."""

    def __init__(self, on_answer: Callable[[], None], on_failure: Callable[[str], None]) -> None:
        self.refusals: Counter[str] = Counter()
        """Why transactions were not taken, with how many."""
        self._unanswered = 0
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._parser = AnswerParser()
        self._transport: asyncio.Transport
        self._closing = False

    @classmethod
    async def connect(cls, url: str, on_answer: Callable[[], None], on_failure: Callable[[str], None]) -> "Pipe":
        """Raises: LoadError."""
        host, _, port = urlsplit(url).netloc.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            _, pipe = await loop.create_connection(lambda: cls(on_answer, on_failure), host, int(port))
        except OSError as error:
            raise LoadError(f"{url} cannot be reached: {error}") from error
        return pipe

    @property
    def has_room(self) -> bool:
        return self._unanswered < MOST_UNANSWERED

    def send(self, request: bytes) -> None:
        self._unanswered += 1
        if self._transport.is_closing():
            self._fail(CLOSED)
            return
        self._transport.write(request)

    def close(self) -> None:
        self._closing = True
        self._transport.close()

    # --- called by the event loop -------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not derived from asyncio's

    def data_received(self, data: bytes) -> None:
        try:
            bodies = self._parser.feed(data)
        except AnswerError as error:
            self._fail(f"CometBFT's RPC answered in an unexpected way: {error}")
            return
        self._unanswered -= len(bodies)
        for body in bodies:
            if _ERROR in body:
                self._count_refusals(body)
        if bodies:
            self._on_answer()

    def connection_lost(self, error: Exception | None) -> None:
        if self._unanswered:
            self._fail(CLOSED)

    def _count_refusals(self, body: bytes) -> None:
        for answer in _list_of_answers(body):
            if error := answer.get("error"):
                text = f"{error.get('message', '')}: {error.get('data', '')}"
                self.refusals[text[:MAX_REASON_CHARACTERS]] += 1

    def _fail(self, reason: str) -> None:
        if not self._closing:
            self.close()
            self._on_failure(reason)


def _list_of_answers(body: bytes) -> list[dict[str, Any]]:
    """A batch of one is answered without a list."""
    found = msgspec.json.decode(body)
    return found if isinstance(found, list) else [found]
