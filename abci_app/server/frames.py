"""Frames of the ABCI socket: an unsigned varint (LEB128) with the length in bytes, then that many bytes of message.

The parser keeps what an incomplete frame has so far, so it does not matter where a read ends: in the middle of a
length, of a message, or after many messages.
"""

from typing import Final

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
"""Room for the largest block that CometBFT allows (100 MiB) and for a genesis of that size; more is refused."""
_MAX_LENGTH_BYTES: Final = 5
"""A varint of five bytes states lengths up to 2^35; longer ones are refused before they are complete."""


class FrameError(ValueError):
    """What came is not a frame, or a larger one than allowed. The connection cannot go on."""


class FrameParser:
    """Cuts a stream of bytes into messages. Memory: at most one unfinished frame plus the chunk last fed."""

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._wanted = 0
        """Bytes that the buffer must hold before it is looked at again."""

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[bytes]:
        """The messages that `chunk` completes, in order.

        Raises: FrameError when a length is not a varint or above the limit; earlier messages of the chunk are lost.
        """
        self._buffer += chunk
        if len(self._buffer) < self._wanted:
            return []
        messages: list[bytes] = []
        position = 0
        with memoryview(self._buffer) as view:
            while (header := self._read_length(view, position)) is not None:
                start, length = header
                if start + length > len(view):
                    self._wanted = start + length - position
                    break
                messages.append(bytes(view[start : start + length]))
                position = start + length
            else:
                self._wanted = 0
        del self._buffer[:position]
        return messages

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._buffer)

    def _read_length(self, view: memoryview, position: int) -> tuple[int, int] | None:
        """(Where the message starts, its length), or None while the length itself is incomplete."""
        length = shift = 0
        for place in range(position, min(position + _MAX_LENGTH_BYTES, len(view))):
            byte = view[place]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if length > self._max_message_bytes:
                    raise FrameError(f"a frame of {length} bytes; at most {self._max_message_bytes} are allowed")
                return place + 1, length
            shift += 7
        if len(view) - position >= _MAX_LENGTH_BYTES:
            raise FrameError(f"a frame whose length takes more than {_MAX_LENGTH_BYTES} bytes")
        return None


def encode_length(length: int) -> bytes:
    """`length` as an unsigned varint."""
    out = bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def frame(message: bytes) -> bytes:
    """`message` as it goes over the socket."""
    return encode_length(len(message)) + message
