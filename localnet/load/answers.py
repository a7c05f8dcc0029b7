"""Answers of an HTTP/1.1 server out of a stream of bytes: just what CometBFT's RPC sends, and little work for each."""

from typing import Final

HEAD_END: Final = b"\r\n\r\n"
MAX_HEAD_BYTES: Final = 16_384
MAX_BODY_BYTES: Final = 16 * 1024 * 1024


class AnswerError(Exception):
    """What came is no answer as CometBFT gives it."""


class AnswerParser:
    """Feed it what arrives, however it is split; it gives each body once it is whole."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes, in order.

        Raises: AnswerError, also for an answer whose status is not 200.
        """
        self._data += data
        bodies = []
        while (found := self._take()) is not None:
            bodies.append(found)
        return bodies

    def _take(self) -> bytes | None:
        head_end = self._data.find(HEAD_END)
        if head_end < 0:
            if len(self._data) > MAX_HEAD_BYTES:
                raise AnswerError("the head of an answer is too long")
            return None
        head = bytes(self._data[:head_end]).lower()
        start = head_end + len(HEAD_END)
        if b"\r\ntransfer-encoding: chunked" in head:
            body, end = self._chunks(start)
        else:
            body, end = self._counted(start, head)
        if body is None:
            return None
        if not head.startswith(b"http/1.1 200"):
            raise AnswerError(f"{head.partition(HEAD_END[:2])[0].decode(errors='replace')}: {body[:300]!r}")
        del self._data[:end]
        return body

    def _counted(self, start: int, head: bytes) -> tuple[bytes | None, int]:
        _, found, rest = head.partition(b"\r\ncontent-length:")
        length = rest.partition(b"\r\n")[0].strip()
        if not found or not length.isdigit():
            raise AnswerError("an answer without its length")
        end = start + _bounded(int(length))
        return (bytes(self._data[start:end]), end) if len(self._data) >= end else (None, 0)

    def _chunks(self, start: int) -> tuple[bytes | None, int]:
        """Joined; the last one is empty, and trailers are not expected."""
        parts: list[bytes] = []
        place, total = start, 0
        while (line_end := self._data.find(b"\r\n", place)) >= 0:
            try:
                length = int(bytes(self._data[place:line_end]), 16)
            except ValueError as error:
                raise AnswerError("a chunk without its length") from error
            total = _bounded(total + length)
            first, place = line_end + 2, line_end + 4 + length
            if len(self._data) < place:
                break
            if length == 0:
                return b"".join(parts), place
            parts.append(bytes(self._data[first : first + length]))
        return None, 0


def _bounded(length: int) -> int:
    if not 0 <= length <= MAX_BODY_BYTES:
        raise AnswerError(f"an answer of {length} bytes")
    return length
