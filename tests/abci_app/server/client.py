"""CometBFT's side of the ABCI socket, for tests: the real protocol over a real socket."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import FrameParser, frame


class AbciExceptionError(Exception):
    """The application answered with `exception`."""


class AbciClient:
    """One connection. `call` waits for the answer, as CometBFT's consensus does; `send` and `receive` pipeline."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = FrameParser()
        self._responses: list[pb.Response] = []

    @classmethod
    async def connect(cls, path: Path) -> "AbciClient":
        return cls(*await asyncio.open_unix_connection(str(path)))

    async def __aenter__(self) -> "AbciClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the end, so that whoever connects next comes after it."""
        self._writer.close()
        with contextlib.suppress(OSError):  # the application may have gone first
            await self._writer.wait_closed()

    async def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, *requests: pb.Request) -> None:
        await self.send_bytes(b"".join(frame(request.SerializeToString()) for request in requests))

    async def receive(self) -> pb.Response:
        """The next response. Raises: EOFError when the application closed the connection."""
        while not self._responses:
            chunk = await self._reader.read(1 << 16)
            if not chunk:
                raise EOFError("the application closed the connection")
            self._responses.extend(pb.Response.FromString(message) for message in self._parser.feed(chunk))
        return self._responses.pop(0)

    async def call(self, **request: Any) -> Any:
        """Send one request and its flush; the answer is the message of the same kind."""
        await self.send(pb.Request(**request), flush())
        response = await self.receive()
        kind = response.WhichOneof("value")
        if kind == "exception":
            raise AbciExceptionError(response.exception.error)
        assert kind == next(iter(request)), f"asked {next(iter(request))}, answered {kind}"
        assert (await self.receive()).WhichOneof("value") == "flush"
        return getattr(response, kind)


def flush() -> pb.Request:
    return pb.Request(flush=pb.RequestFlush())


def check_tx(tx: bytes, *, recheck: bool = False) -> pb.Request:
    return pb.Request(check_tx=pb.RequestCheckTx(tx=tx, type=pb.RECHECK if recheck else pb.NEW))
