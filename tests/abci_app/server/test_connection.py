"""One connection on its own: batches, one write each, back-pressure both ways."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from abci_app.server import abci_pb2 as pb
from abci_app.server.connection import MAX_BATCH, MAX_WAITING, MAX_WAITING_BYTES, Connection, Lanes
from abci_app.server.dispatch import Dispatcher
from abci_app.server.frames import FrameParser, frame
from abci_app.verifiers import VerifierProcesses


class RecordingTransport(asyncio.Transport):
    """The edge of the connection: what it asks of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.calls: list[str] = []
        self.wrote = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.wrote.set()

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return "close" in self.calls

    def close(self) -> None:
        self.calls.append("close")

    def messages(self) -> list[pb.Response]:
        return [pb.Response.FromString(m) for m in FrameParser().feed(b"".join(self.writes))]


class NoApplication:
    """For requests that the server answers itself."""

    def __getattr__(self, name: str) -> None:
        return None


def make_connection() -> tuple[Connection, RecordingTransport, list[BaseException]]:
    failures: list[BaseException] = []
    pool = ThreadPoolExecutor(1)
    lanes = Lanes(Dispatcher(NoApplication()), VerifierProcesses(1), pool, pool)
    connection, transport = Connection(lanes, failures.append, lambda _: None), RecordingTransport()
    connection.connection_made(transport)
    return connection, transport, failures


def echo(text: str) -> bytes:
    return frame(pb.Request(echo=pb.RequestEcho(message=text)).SerializeToString())


FLUSH = frame(pb.Request(flush=pb.RequestFlush()).SerializeToString())


async def test_all_requests_of_a_read_are_answered_with_one_write() -> None:
    connection, transport, _ = make_connection()
    connection.data_received(b"".join(echo(str(i)) for i in range(100)) + FLUSH)
    await transport.wrote.wait()
    assert len(transport.writes) == 1
    answers = transport.messages()
    assert [answer.echo.message for answer in answers[:-1]] == [str(i) for i in range(100)]
    assert answers[-1].WhichOneof("value") == "flush"
    connection.connection_lost(None)


async def test_reading_pauses_while_many_requests_wait_and_goes_on_afterwards() -> None:
    connection, transport, _ = make_connection()
    count = MAX_WAITING + 1
    connection.data_received(b"".join(echo(str(i)) for i in range(count)))
    assert transport.calls == ["pause"]
    async with asyncio.timeout(10):
        while len(transport.messages()) < count:
            transport.wrote.clear()
            await transport.wrote.wait()
    assert transport.calls == ["pause", "resume"]
    assert [answer.echo.message for answer in transport.messages()] == [str(i) for i in range(count)]
    assert len(transport.writes) == -(-count // MAX_BATCH)
    connection.connection_lost(None)


async def test_reading_pauses_while_many_bytes_wait() -> None:
    connection, transport, _ = make_connection()
    connection.data_received(echo("x" * (MAX_WAITING_BYTES + 1)))
    assert transport.calls == ["pause"]
    await transport.wrote.wait()
    assert transport.calls == ["pause", "resume"]
    connection.connection_lost(None)


async def test_nothing_is_written_while_the_other_side_does_not_read() -> None:
    connection, transport, _ = make_connection()
    connection.pause_writing()
    connection.data_received(echo("a"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.writes == []
    connection.resume_writing()
    await transport.wrote.wait()
    assert [answer.echo.message for answer in transport.messages()] == ["a"]
    connection.connection_lost(None)


async def test_after_a_refused_frame_nothing_more_is_answered() -> None:
    connection, transport, failures = make_connection()
    connection.data_received(echo("a"))
    connection.data_received(b"\xff" * 8)
    async with asyncio.timeout(10):
        while "close" not in transport.calls:
            await asyncio.sleep(0)
    assert [answer.WhichOneof("value") for answer in transport.messages()] == ["echo", "exception"]
    assert transport.calls == ["pause", "close"]
    assert failures == []
