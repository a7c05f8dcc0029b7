"""What a row server answers readers, and how it keeps malformed, oversized and slow requests from doing harm."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from da_layer.coding import encode_blob
from da_layer.limits import ByteBudget, DaLimits
from da_layer.wire import BlobStatus, ProvenRow, PutRequest, in_small_pieces, put_body
from primitives.blobs import ServiceSet
from primitives.encoding import EncodingError, decode, encode
from tests.da_layer.bench import LIMITS, Bench, bench_in, start_upload
from tests.da_layer.network import (
    Handler,
    network,
    promise_for,
    proven_rows,
    sign,
)


@pytest.mark.parametrize("body", [b"", b"garbage", b"\x94", b"\xdd\xff\xff\xff\xff", b"\x91" * 5000])
async def test_garbage_is_refused(bench: Bench, body: bytes) -> None:
    """FAULTS D20."""
    assert (await bench.put_bytes(body)).error == (400, "malformed")


async def test_trailing_bytes_are_refused(bench: Bench) -> None:
    signed = sign(bench.promise)
    body = encode(PutRequest(signed.promise, signed.public_key, signed.signature, tuple(bench.rows)))
    assert (await bench.put_bytes(body + b"\x00")).error == (400, "malformed")
    assert (await bench.put_bytes(body[:-1])).error == (400, "malformed")


@pytest.mark.parametrize("commitment", ["00", "0" * 63, "0" * 65, "g" * 64, "F" * 64, "%00" * 64])
async def test_identifiers_of_the_wrong_form_are_refused(bench: Bench, commitment: str) -> None:
    """FAULTS D8."""
    assert (await bench.get("", commitment)).error == (400, "malformed")
    assert (await bench.get("/rows", commitment)).error == (400, "malformed")
    assert (await bench.put(sign(bench.promise), bench.rows, commitment)).error == (400, "malformed")


async def test_bodies_over_the_limit_are_refused_before_they_are_read(bench: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bench.node.url.rsplit(":", 1)[1]))
    path = f"/da/v1/blobs/{bench.blob.commitment.hex()}"
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {LIMITS.max_body_bytes + 1}\r\n\r\n".encode())
    assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


async def test_bodies_without_a_length_are_refused(bench: Bench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"piece"

    async with bench.net.session.put(bench.url(), data=pieces()) as response:
        assert response.status == 411


async def test_an_upload_that_stops_in_the_middle_is_given_up(bench: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bench.node.url.rsplit(":", 1)[1]))
    path = f"/da/v1/blobs/{bench.blob.commitment.hex()}"
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\nfirst".encode())
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


async def test_a_silent_upload_gets_no_more_time_for_announcing_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few connections that send nothing would else hold all places of uploads for minutes."""
    monkeypatch.setattr(DaLimits, "time_for", lambda limits, size: limits.patience_s + size)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(bench.node.url.rsplit(":", 1)[1]))
    path = f"/da/v1/blobs/{bench.blob.commitment.hex()}"
    announced = LIMITS.max_body_bytes
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {announced}\r\n\r\n".encode())
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


@pytest.mark.parametrize(
    "rows",
    [
        b"\xdc\x4e\x20" + bytes.fromhex("9300c40093000090") * 20_000,
        b"\x91\x93\x00\xc4\x00\x93\x00\x00\xdc\xc3\x50" + b"\xc4\x00" * 50_000,
    ],
)
async def test_more_parts_than_a_blob_can_have_are_refused_before_they_are_unpacked(bench: Bench, rows: bytes) -> None:
    """Empty rows and hashes take many times their bytes in memory."""
    signed = sign(bench.promise)
    head = b"\x94" + encode(signed.promise) + encode(signed.public_key) + encode(signed.signature)
    with pytest.raises(EncodingError, match="length <= "):
        decode(head + rows, PutRequest)
    assert (await bench.put_bytes(head + rows)).error == (400, "malformed")


async def test_too_many_uploads_at_once_are_asked_to_come_back(bench: Bench) -> None:
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def tell(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun.put_nowait(None)
        return await handler(request)

    bench.node.fault = tell
    idle = [await start_upload(bench, announced=1000) for _ in range(LIMITS.max_puts)]
    for _ in idle:
        await begun.get()
    answer = await bench.put(sign(bench.promise), bench.rows)
    for writer in idle:
        writer.close()
    assert answer.error == (503, "busy")
    assert answer.headers["Retry-After"] == "1"


async def test_too_many_bytes_at_once_are_asked_to_come_back(tmp_path: Path) -> None:
    async with network(tmp_path, limits=DaLimits(max_body_bytes=200_000, in_flight_bytes=250_000)) as net:
        bench = bench_in(net)
        writer = await start_upload(bench, announced=200_000, sent=199_999)
        answer = await bench.put_bytes(bytes(100_000))
        async with asyncio.timeout(5):
            while answer.error == (400, "malformed"):
                answer = await bench.put_bytes(bytes(100_000))
        writer.close()
        assert answer.error == (503, "busy")


async def test_a_reader_who_stops_reading_is_cut_off_however_long_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few of them would else hold all memory for answers for minutes."""
    cut = asyncio.Event()

    async def tell(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        cut.set()
        return response

    async with network(tmp_path, (1,)) as net:
        blob = net.encode(bytes(16 * 1024 * 1024))
        net.store_everywhere(blob)
        net.nodes[0].fault = tell
        monkeypatch.setattr(DaLimits, "time_for", lambda limits, size: 0.3 if size < 2**25 else 100.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(net.nodes[0].url.rsplit(":", 1)[1]), limit=1024)
        writer.write(f"GET /da/v1/blobs/{blob.commitment.hex()}/rows HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        await asyncio.wait_for(cut.wait(), 5)
        writer.transport.abort()


def test_a_byte_budget_keeps_back_what_a_lease_should_leave() -> None:
    budget = ByteBudget(10)
    with budget.lease() as answers, budget.lease() as uploads:
        assert answers.take(5, leaving=5)
        assert not answers.take(1, leaving=5)
        assert uploads.take(5)


async def test_a_question_for_the_head_of_rows_gets_no_rows(bench: Bench) -> None:
    bench.net.store_everywhere(bench.blob)
    async with bench.net.session.head(bench.url() + "/rows") as response:
        assert response.status == 200
        assert int(response.headers["Content-Length"]) > 0
        assert await response.read() == b""
    assert (await bench.get("/rows")).status == 200


def test_a_byte_budget_lends_what_it_has_and_takes_it_back() -> None:
    budget = ByteBudget(100)
    with budget.lease() as first, budget.lease() as second:
        assert first.take(60)
        assert not second.take(41)
        assert second.take(40)
    assert budget.free == 100


async def test_the_four_answers(bench: Bench, tmp_path: Path) -> None:
    assert (await bench.get()).error == (404, "unknown")
    assert (await bench.get("/rows?index=0")).error == (404, "unknown")
    await bench.put(sign(bench.promise), bench.rows)
    status = await bench.get()
    assert decode(status.body, BlobStatus) == BlobStatus(bench.promise, bench.indices)
    one = await bench.get(f"/rows?index={bench.indices[1]}&index=254&index={bench.indices[1]}")
    assert decode(one.body, tuple[ProvenRow, ...]) == (bench.rows[1],)
    (bench.node.store._files.directory_of(sign(bench.promise)) / "rows").unlink()
    assert (await bench.get("/rows")).error == (503, "unavailable")
    assert (await bench.get("/rows")).error == (503, "unavailable")
    bench.node.store.prune(101)
    gone = await bench.get("/rows")
    assert gone.error == (410, "pruned")
    assert msgspec.json.decode(gone.body)["height"] == 101
    assert (await bench.get()).error == (410, "pruned")


async def test_rows_of_others_are_not_here(bench: Bench) -> None:
    await bench.put(sign(bench.promise), bench.rows)
    other = bench.net.assigned(bench.blob)[1][0]
    assert (await bench.get(f"/rows?index={other}")).error == (503, "unavailable")


async def test_long_answers_are_cut_at_whole_rows(bench: Bench) -> None:
    await bench.put(sign(bench.promise), bench.rows)
    rows = decode((await bench.get("/rows")).body, tuple[ProvenRow, ...])
    assert list(rows) == bench.rows[: len(rows)]
    assert 1 <= len(rows) < len(bench.rows)


@pytest.mark.parametrize("query", ["index=", "index=-1", "index=1.5", "index=x", "index=1000", "index=%D9%A1"])
async def test_row_numbers_out_of_form_are_refused(bench: Bench, query: str) -> None:
    assert (await bench.get(f"/rows?{query}")).error == (400, "malformed")


async def test_too_many_row_numbers_are_refused(bench: Bench) -> None:
    query = "&".join("index=1" for _ in range(256))
    assert (await bench.get(f"/rows?{query}")).error == (400, "malformed")


@pytest.mark.parametrize(("k", "n"), [(1, 3), (8, 24), (85, 255)])
@pytest.mark.parametrize("size", [1, 85 * 128, 85 * 320, 70_000])
def test_bodies_in_pieces_are_the_canonical_encoding(k: int, n: int, size: int) -> None:
    blob = encode_blob(random.Random(size).randbytes(size), k=k, n=n)
    signed = sign(promise_for(blob, ServiceSet(1, ())))
    whole = encode(PutRequest(signed.promise, signed.public_key, signed.signature, tuple(proven_rows(blob, range(n)))))
    assert b"".join(in_small_pieces(put_body(signed, blob, range(n)))) == whole


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="max_puts"):
        DaLimits(max_puts=0)
    with pytest.raises(ValueError, match="in_flight_bytes"):
        DaLimits(in_flight_bytes=1000)
