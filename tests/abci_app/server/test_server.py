"""The server over real sockets: order of answers, hostile input, failures, the socket file."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from abci_app.application import Application
from abci_app.execution import Unverified
from abci_app.parsed import parse_transaction
from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import MAX_MESSAGE_BYTES, encode_length, frame
from abci_app.server.server import AbciServer, SocketUnavailable, claim_socket
from abci_app.store import Store
from tests.abci_app import kit
from tests.abci_app.server.client import AbciClient, AbciExceptionError, check_tx, flush

PARSED = parse_transaction(kit.transfer(0))


class EchoingApplication(Application):
    """Its CheckTx says what it got; the signature of transactions that begin with ``signed`` is verified before."""

    def begin_check(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx | Unverified:
        if request.tx == b"bug":
            raise RuntimeError("a bug in the rules")
        if request.tx.startswith(b"signed"):
            return Unverified(PARSED, request.tx)
        return pb.ResponseCheckTx(data=request.tx)

    def end_check(self, unverified: Unverified, *, good: bool) -> pb.ResponseCheckTx:
        return pb.ResponseCheckTx(data=unverified.record, code=0 if good else 1)


class Gate:
    """Verifiers that wait until it is opened; then signatures that do not end with ``bad`` are good."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.entered = asyncio.Event()

    async def start(self) -> None:
        pass

    async def verify(self, records: Sequence[bytes]) -> Sequence[int]:
        self.entered.set()
        await self.opened.wait()
        return [not record.endswith(b"bad") for record in records]

    async def close(self) -> None:
        pass


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with Store(tmp_path / "app") as store:
        yield EchoingApplication(store)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(application: Application, gate: Gate, tmp_path: Path) -> AsyncIterator[AbciServer]:
    server = AbciServer(application, tmp_path / "abci.sock", verifiers=gate)
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def client(server: AbciServer, tmp_path: Path) -> AsyncIterator[AbciClient]:
    async with await AbciClient.connect(tmp_path / "abci.sock") as client:
        yield client


async def test_echo_and_info(client: AbciClient) -> None:
    assert (await client.call(echo=pb.RequestEcho(message="hello"))).message == "hello"
    assert (await client.call(info=pb.RequestInfo())).data == "outerstep"


async def test_requests_that_come_one_byte_at_a_time(client: AbciClient) -> None:
    stream = frame(pb.Request(echo=pb.RequestEcho(message="hello")).SerializeToString()) * 2
    for i in range(len(stream)):
        await client.send_bytes(stream[i : i + 1])
    assert [(await client.receive()).echo.message for _ in range(2)] == ["hello", "hello"]


async def test_pipelined_checks_are_answered_in_order_whichever_ends_first(client: AbciClient, gate: Gate) -> None:
    txs = [b"signed" if i % 70 == 0 else str(i).encode() for i in range(200)]
    await client.send(*(check_tx(tx) for tx in txs[:100]), flush(), *(check_tx(tx) for tx in txs[100:]), flush())
    async with asyncio.timeout(20):
        await gate.entered.wait()
    gate.opened.set()
    answers = [await client.receive() for _ in range(len(txs) + 2)]
    assert [a.WhichOneof("value") for a in answers].index("flush") == 100
    assert answers[-1].WhichOneof("value") == "flush"
    assert [a.check_tx.data for a in answers if a.WhichOneof("value") == "check_tx"] == txs


async def test_each_check_is_told_of_its_own_signature(client: AbciClient, gate: Gate) -> None:
    gate.opened.set()
    txs = [b"signed %d %s" % (i, b"bad" if i % 3 == 0 else b"good") for i in range(150)]
    await client.send(*map(check_tx, txs), flush())
    answers = [(await client.receive()).check_tx for _ in txs]
    assert [(answer.data, answer.code) for answer in answers] == [(tx, int(tx.endswith(b"bad"))) for tx in txs]


async def test_a_flood_of_checks_does_not_hold_up_a_block(client: AbciClient, gate: Gate, tmp_path: Path) -> None:
    async with await AbciClient.connect(tmp_path / "abci.sock") as consensus:
        await client.send(*(check_tx(b"signed" + str(i).encode()) for i in range(5000)), flush())
        async with asyncio.timeout(20):
            await gate.entered.wait()
            await consensus.call(init_chain=kit.init_chain())
            await consensus.call(finalize_block=kit.block(1))
            await consensus.call(commit=pb.RequestCommit())
        gate.opened.set()
        assert [(await client.receive()).check_tx.data for _ in range(5000)][-1] == b"signed4999"


async def test_a_call_sees_what_the_calls_before_it_did(client: AbciClient) -> None:
    await client.send(
        pb.Request(init_chain=kit.init_chain()),
        pb.Request(finalize_block=kit.block(1)),
        pb.Request(commit=pb.RequestCommit()),
        pb.Request(info=pb.RequestInfo()),
        flush(),
    )
    answers = [await client.receive() for _ in range(5)]
    assert answers[3].info.last_block_height == 1
    assert answers[3].info.last_block_app_hash == answers[1].finalize_block.app_hash


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (encode_length(MAX_MESSAGE_BYTES + 1), "at most"),
        (b"\xff" * 10, "length takes more than"),
        (frame(b"\xff\xff\xff"), "not an ABCI request"),
        (frame(b""), "a kind that ABCI 2.0"),
        (frame(b"\x4a\x00"), "a kind that ABCI 2.0"),
    ],
)
async def test_what_is_no_request_ends_its_own_connection_only(
    server: AbciServer, client: AbciClient, tmp_path: Path, bytes_sent: bytes, reason: str
) -> None:
    async with await AbciClient.connect(tmp_path / "abci.sock") as hostile:
        await hostile.send_bytes(frame(pb.Request(echo=pb.RequestEcho(message="first")).SerializeToString()))
        assert (await hostile.receive()).echo.message == "first"
        await hostile.send_bytes(bytes_sent)
        assert reason in (await hostile.receive()).exception.error
        with pytest.raises(EOFError):
            await hostile.receive()
    assert (await client.call(echo=pb.RequestEcho(message="alive"))).message == "alive"


async def test_a_peer_that_leaves_in_the_middle_of_a_frame_harms_nobody(
    server: AbciServer, client: AbciClient, tmp_path: Path
) -> None:
    async with await AbciClient.connect(tmp_path / "abci.sock") as leaver:
        await leaver.send_bytes(encode_length(1000) + b"half")
    assert (await client.call(echo=pb.RequestEcho(message="alive"))).message == "alive"


async def test_an_exception_out_of_the_application_ends_the_server(server: AbciServer, client: AbciClient) -> None:
    await client.send(check_tx(b"bug"), flush())
    failure = await asyncio.wait_for(server.wait(), 20)
    assert str(failure) == "a bug in the rules"


async def test_the_client_reports_exceptions(client: AbciClient) -> None:
    await client.send_bytes(frame(b""))
    with pytest.raises(AbciExceptionError):
        await client.call(echo=pb.RequestEcho())


async def test_a_stopped_server_returns_and_removes_its_socket(application: Application, tmp_path: Path) -> None:
    server = AbciServer(application, tmp_path / "other.sock")
    await server.start()
    assert (tmp_path / "other.sock").stat().st_mode & 0o777 == 0o600
    server.stop()
    assert await server.wait() is None
    await server.close()
    assert not (tmp_path / "other.sock").exists()


def test_a_socket_file_left_by_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "abci.sock"
    with claim_socket(path):
        pass
    assert path.exists()
    with claim_socket(path) as listener, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        assert listener.accept()


def test_a_path_where_another_process_listens_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "abci.sock"
    with claim_socket(path), pytest.raises(SocketUnavailable, match="another process listens"):
        claim_socket(path)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "abci.sock"
    path.write_text("precious")
    with pytest.raises(SocketUnavailable, match="not a socket"):
        claim_socket(path)
    assert path.read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_explained(tmp_path: Path) -> None:
    with pytest.raises(SocketUnavailable, match="too long"):
        claim_socket(tmp_path / ("x" * 120))
