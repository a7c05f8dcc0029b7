"""The services of a node as a process under abuse over real sockets: memory stays flat, honest callers are answered.

Attackers come from 127.0.0.3 and 127.0.0.4, the honest caller from 127.0.0.2; none of them is exempt from the limits.
"""

import asyncio
import contextlib
import dataclasses
import json
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from node import connections as connections_module
from node import errors, rpc_http
from node.config import load_config, ports_from
from node.connections import ConnectionLimits, Connections
from node.genesis import install_genesis, make_genesis
from node.init import init_node
from node.rate import RateLimiter
from tests.node.conftest import ALICE, CHAIN_ID, Made, Served, open_engine
from tests.ports import free_ports

ROOT: Final = Path(connections_module.__file__).parent.parent
HONEST, ATTACKER, OTHER_ATTACKER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
TOTAL, PER_ADDRESS, HEADER_S, IDLE_S = 200, 80, 2.0, 3.0
MIB: Final = 1024 * 1024
GROWTH_BYTES: Final = 80 * MIB
"""Most that the process may grow by during one attack; the stopped bodies alone are twice as much, sent at once."""
BODY_BYTES: Final = MIB
PROGRAM: Final = f"""
import sys, uvloop
from pathlib import Path
from node.connections import ConnectionLimits
from node.services import serve
limits = ConnectionLimits(connections={TOTAL}, per_address={PER_ADDRESS}, header_s={HEADER_S}, idle_s={IDLE_S},
                          exempt=lambda address: False)
uvloop.run(serve(Path(sys.argv[1]), limits))
"""
STATUS: Final = {"jsonrpc": "2.0", "id": 7, "method": "node_status"}
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Target:
    """A process of services."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def memory(self) -> int:
        """Bytes that it holds in memory now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    async def connect(self, source: str) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))


@pytest.fixture
def home(tmp_path: Path) -> Made:
    home = tmp_path / "node"
    identity = init_node(home, moniker="test", network=ports_from(free_ports(4)))
    genesis = make_genesis([identity], {ALICE.address: 10**12}, chain_id=CHAIN_ID)
    install_genesis(home, genesis)
    return Made(home, identity, genesis)


@contextlib.contextmanager
def running(home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(home)], cwd=ROOT, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def target(home: Made, tmp_path: Path) -> AsyncIterator[Target]:
    engine_port = int(_setting_of(home.home, "engine_rpc").rsplit(":", 1)[1])
    port = int(_setting_of(home.home, "services").rsplit(":", 1)[1])
    with open_engine(home, tmp_path / "app") as engine, running(home.home, tmp_path / "log") as process:
        async with TestServer(engine.application(), port=engine_port):
            target = Target(port, process)
            async with asyncio.timeout(60):
                while not await _is_ready(target):
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    await asyncio.sleep(0.1)
            yield target


def _setting_of(home: Path, name: str) -> str:
    return str(getattr(load_config(home).network, name))


async def _is_ready(target: Target) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{target.url}/health") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


class HonestCaller:
    """Calls over a new connection each time, and notes the most memory that the process held."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.num_answers = 0
        self.most_memory = target.memory()

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(local_addr=(HONEST, 0), force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                async with session.post(f"{self._target.url}/rpc", json=STATUS) as response:
                    answer = await response.json()
                assert (answer["id"], answer["result"]["chain_id"]) == (7, CHAIN_ID)
                self.num_answers += 1
                self.most_memory = max(self.most_memory, self._target.memory())

    async def answered(self, number: int) -> None:
        """Wait for so many more answers."""
        wanted = self.num_answers + number
        while self.num_answers < wanted:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def honest_caller(target: Target) -> AsyncIterator[HonestCaller]:
    """Is answered before, during and at the end of the attack, while memory stays within its bound."""
    caller = HonestCaller(target)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(caller.run())
        await caller.answered(20)
        before = target.memory()
        caller.most_memory = before
        yield caller
        await caller.answered(20)
        calling.cancel()
    assert caller.most_memory - before < GROWTH_BYTES


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Waits for the other side to close."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(65536):
            pass
    return True


# --- connections --------------------------------------------------------------------------------------------------
async def test_headers_that_trickle_in_are_given_up(target: Target) -> None:
    async with honest_caller(target):
        streams = [await target.connect(ATTACKER) for _ in range(PER_ADDRESS)]
        tricklers = [asyncio.create_task(_trickle(writer)) for _, writer in streams]
        assert all(await asyncio.gather(*(is_closed(reader) for reader, _ in streams)))
        for task in tricklers:
            task.cancel()
        await asyncio.gather(*tricklers, return_exceptions=True)
        reader, writer = await target.connect(ATTACKER)
        writer.write(b"GET /health HTTP/1.1\r\nHost: node\r\n\r\n")
        assert b" 200 " in await reader.readline()
        writer.close()


async def _trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /rpc HTTP/1.1\r\n")
    while True:
        writer.write(b"A: b\r\n")
        await asyncio.sleep(0.3)


async def test_a_header_that_trickles_in_after_an_answer_is_given_up(target: Target) -> None:
    async with honest_caller(target):
        reader, writer = await target.connect(ATTACKER)
        writer.write(b"GET /health HTTP/1.1\r\nHost: node\r\n\r\n")
        assert b" 200 " in await reader.readline()
        trickling = asyncio.create_task(_trickle(writer))
        assert await is_closed(reader)
        trickling.cancel()


async def test_of_many_idle_sockets_only_so_many_are_held(target: Target) -> None:
    async with honest_caller(target):
        held = 0
        for _ in range(15):
            streams = [await target.connect(ATTACKER) for _ in range(100)]
            first = [asyncio.create_task(is_closed(reader)) for reader, _ in streams]
            await asyncio.sleep(0)
            assert await _one_more_is_refused(target)
            held = max(held, sum(not task.done() for task in first))
            for task, (_, writer) in zip(first, streams, strict=True):
                task.cancel()
                writer.transport.abort()
            await asyncio.gather(*first, return_exceptions=True)
        assert 0 < held <= PER_ADDRESS


async def _one_more_is_refused(target: Target) -> bool:
    """Whether a connection is closed with nothing sent, while those before it are held."""
    reader, writer = await target.connect(ATTACKER)
    closed = await is_closed(reader)
    writer.transport.abort()
    return closed


# --- bodies -------------------------------------------------------------------------------------------------------
BOMBS: Final = {
    "brackets": (b"[" * 100_000, errors.PARSE_ERROR),
    "objects": (b'{"a":' * 100_000, errors.PARSE_ERROR),
    "not UTF-8": (b'"' + b"\xff" * 500_000 + b'"', errors.PARSE_ERROR),
    "long number": (b"1" * 500_000, errors.PARSE_ERROR),
    "batch of objects": (b"[" + b"{}," * 300_000 + b"{}]", errors.INVALID_REQUEST),
    "batch of calls": (b"[" + b",".join([json.dumps(STATUS).encode()] * 10_000) + b"]", errors.INVALID_REQUEST),
    "too large": (b" " * (BODY_BYTES + 1), errors.INVALID_REQUEST),
}


async def test_hostile_bodies_are_refused(target: Target) -> None:
    connector = aiohttp.TCPConnector(local_addr=(ATTACKER, 0), limit=8)
    async with honest_caller(target), aiohttp.ClientSession(connector=connector) as session:

        async def throw(name: str) -> None:
            body, code = BOMBS[name]
            async with session.post(f"{target.url}/rpc", data=body) as response:
                assert (await response.json())["error"]["code"] == code, name

        await asyncio.gather(*(throw(name) for name in BOMBS for _ in range(6)))


async def test_a_small_body_that_unpacks_to_a_large_one_is_refused(target: Target) -> None:
    packed = zlib.compress(bytes(512 * MIB), 9)
    assert len(packed) < BODY_BYTES
    connector = aiohttp.TCPConnector(local_addr=(ATTACKER, 0))
    async with honest_caller(target), aiohttp.ClientSession(connector=connector) as session:
        headers = {"Content-Encoding": "deflate"}
        async with session.post(f"{target.url}/rpc", data=packed, headers=headers) as response:
            assert response.status == 413


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_large_bodies_that_stop_before_their_end_hold_little_together(target: Target, framing: str) -> None:
    kind = f"Content-Length: {BODY_BYTES}" if framing == "length" else "Transfer-Encoding: chunked"
    header = f"POST /rpc HTTP/1.1\r\nHost: node\r\n{kind}\r\n\r\n".encode()
    part = b" " * (BODY_BYTES - 1024)
    body = part if framing == "length" else b"%x\r\n%s\r\n" % (len(part), part)
    async with honest_caller(target) as caller:
        streams = [await target.connect(source) for source in (ATTACKER, OTHER_ATTACKER) for _ in range(PER_ADDRESS)]
        for _, writer in streams:
            writer.write(header + body)
        refused = [asyncio.create_task(reader.readline()) for reader, _ in streams]
        done, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        assert b" 503 " in next(iter(done)).result()
        await caller.answered(50)
        for task, (_, writer) in zip(refused, streams, strict=True):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*refused, return_exceptions=True)


# --- WebSockets ---------------------------------------------------------------------------------------------------
async def test_a_flood_of_subscriptions_ends_at_its_limit(target: Target) -> None:
    call = {**STATUS, "method": "subscribe", "params": {"topic": "blocks"}}
    connector = aiohttp.TCPConnector(local_addr=(ATTACKER, 0))
    async with honest_caller(target), aiohttp.ClientSession(connector=connector) as session:

        async def flood() -> int:
            async with session.ws_connect(f"{target.url}/ws") as socket:
                for _ in range(100):
                    await socket.send_json(call)
                answers = [await socket.receive_json() for _ in range(100)]
                return sum("result" in answer for answer in answers)

        assert await asyncio.gather(*(flood() for _ in range(20))) == [rpc_http.MAX_SUBSCRIPTIONS] * 20


async def test_answers_that_nobody_takes_are_not_piled_up(target: Target) -> None:
    call = json.dumps({**STATUS, "method": "rpc.discover"})
    connector = aiohttp.TCPConnector(local_addr=(ATTACKER, 0))
    async with honest_caller(target) as caller, aiohttp.ClientSession(connector=connector) as session:
        sockets = [await session.ws_connect(f"{target.url}/ws") for _ in range(20)]

        async def ask(socket: aiohttp.ClientWebSocketResponse) -> None:
            for _ in range(1500):
                await socket.send_str(call)

        asking = [asyncio.create_task(ask(socket)) for socket in sockets]
        await caller.answered(200)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


# --- parts --------------------------------------------------------------------------------------------------------
def test_connections_are_counted_by_address_and_in_all() -> None:
    limits = ConnectionLimits(connections=5, per_address=2)
    connections = Connections(limits)
    assert [connections.admit("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert not connections.admit("::ffff:10.0.0.1")
    connections.leave("10.0.0.1")
    assert [connections.admit(a) for a in ("2001:db8::1", "2001:db8::2", "2001:db8::3")] == [True, True, False]
    assert [connections.admit("127.0.0.1") for _ in range(3)] == [True, True, False]
    assert connections.num_open == 5
    own = Connections(dataclasses.replace(limits, exempt=lambda _: False))
    assert [own.admit("127.0.0.1") for _ in range(3)] == [True, True, False]


async def test_garbage_counts_against_the_rate_before_it_is_parsed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_http, "is_loopback", lambda _: False)
    monkeypatch.setattr(RateLimiter, "take", RateLimiter(0.001, 2, lambda: 0.0).take)
    async with aiohttp.ClientSession() as session:
        codes = []
        for body in (b"[" * 50_000, b"\xff", b"[" * 50_000):
            async with session.post(f"{served.url}/rpc", data=body) as response:
                codes.append((await response.json())["error"]["code"])
    assert codes == [errors.PARSE_ERROR, errors.PARSE_ERROR, errors.RATE_LIMITED]
