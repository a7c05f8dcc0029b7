"""One row server against hostile requests: what it lets in, what it answers, what it never does."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from da_layer.coding import EncodedBlob, encode_blob
from da_layer.errors import ChainUnavailable
from da_layer.limits import ByteBudget, DaLimits
from da_layer.wire import BlobStatus, ProvenRow, PutRequest, SignedPromise, in_small_pieces, put_body
from primitives.blobs import Attestation, BlobPromise, ServiceMember, ServiceSet
from primitives.encoding import decode, encode
from primitives.keys import PrivateKey, verify_signature
from tests.da_layer.network import (
    PUBLISHER,
    Handler,
    Network,
    Node,
    network,
    promise_for,
    proven_rows,
    sign,
    wrong_bytes,
    wrong_proof,
)

LIMITS = DaLimits(max_body_bytes=200_000, in_flight_bytes=250_000, max_answer_bytes=4_000, max_puts=2, patience_s=0.3)
DATA = random.Random(3).randbytes(5000)


@dataclass
class Bench:
    """One node of four, a blob, and the rows of that node."""

    net: Network
    node: Node
    member: ServiceMember
    blob: EncodedBlob
    indices: tuple[int, ...]

    @property
    def promise(self) -> BlobPromise:
        return promise_for(self.blob, self.net.members)

    @property
    def rows(self) -> list[ProvenRow]:
        return proven_rows(self.blob, self.indices)

    def url(self, commitment: str | None = None) -> str:
        return f"{self.node.url}/da/v1/blobs/{commitment or self.blob.commitment.hex()}"

    async def put(self, signed: SignedPromise, rows: list[ProvenRow], commitment: str | None = None) -> "Answer":
        body = encode(PutRequest(signed.promise, signed.public_key, signed.signature, tuple(rows)))
        return await self.put_bytes(body, commitment)

    async def put_bytes(self, body: bytes, commitment: str | None = None) -> "Answer":
        async with self.net.session.put(self.url(commitment), data=body) as response:
            return Answer(response.status, await response.read(), dict(response.headers))

    async def get(self, path: str = "", commitment: str | None = None) -> "Answer":
        async with self.net.session.get(self.url(commitment) + path) as response:
            return Answer(response.status, await response.read(), dict(response.headers))


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def error(self) -> tuple[int, str]:
        """Status and word of an error answer, which must be JSON with a detail."""
        fields: dict[str, Any] = msgspec.json.decode(self.body)
        assert fields["detail"]
        return self.status, fields["error"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with network(tmp_path, limits=LIMITS, budget_bytes=100_000) as net:
        yield bench_in(net)


def bench_in(net: Network) -> Bench:
    blob = net.encode(DATA)
    member = net.members.members[0]
    return Bench(net, net.node_of(member), member, blob, net.assigned(blob)[0])


def nothing_stored(bench: Bench) -> bool:
    return bench.node.store.used_bytes == 0 and bench.node.store.status(bench.blob.commitment) is None


async def test_a_node_attests_rows_that_it_holds(bench: Bench) -> None:
    answer = await bench.put(sign(bench.promise), bench.rows)
    word = decode(answer.body, Attestation)
    assert answer.status == 200
    assert word.operator == bench.member.operator
    assert verify_signature(bench.member.service_key, bench.promise.attestation_digest, word.signature)
    assert bench.node.store.read(bench.blob.commitment, range(24)) == bench.rows


async def test_a_replayed_upload_is_attested_again_and_stored_once(bench: Bench) -> None:
    await bench.put(sign(bench.promise), bench.rows)
    used = bench.node.store.used_bytes
    answer = await bench.put(sign(bench.promise), bench.rows)
    assert (answer.status, bench.node.store.used_bytes, bench.net.chain.asked) == (200, used, 1)


async def test_uploads_of_the_same_blob_at_once_are_all_attested(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.put(sign(bench.promise), bench.rows) for _ in range(2)))
    assert [answer.status for answer in answers] == [200, 200]
    assert bench.node.store.used_bytes < 2 * 6 * bench.blob.header.row_size


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"chain_id": "other"}, (400, "wrong_chain")),
        ({"namespace": ""}, (400, "bad_promise")),
        ({"namespace": "UPPER"}, (400, "bad_promise")),
        ({"namespace": "a" * 65}, (400, "bad_promise")),
        ({"expiry_height": 9}, (400, "expired")),
        ({"expiry_height": -1}, (400, "expired")),
        ({"expiry_height": 2**63}, (400, "expired")),
        ({"set_version": 2}, (409, "unknown_service_set")),
        ({"set_version": -1}, (400, "bad_promise")),
        ({"publisher": bytes(20)}, (403, "wrong_publisher")),
        ({"publisher": b""}, (403, "wrong_publisher")),
    ],
)
async def test_promises_out_of_form_are_refused(
    bench: Bench, changes: dict[str, object], error: tuple[int, str]
) -> None:
    answer = await bench.put(sign(msgspec.structs.replace(bench.promise, **changes)), bench.rows)
    assert answer.error == error
    assert nothing_stored(bench)


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 0},
        {"k": 25},
        {"n": 256},
        {"size": 0},
        {"size": 2**40},
        {"row_size": 64},
        {"rows_root": b"short"},
        {"codec": "none"},
        {"version": 0},
    ],
)
async def test_headers_out_of_form_are_refused(bench: Bench, changes: dict[str, object]) -> None:
    header = msgspec.structs.replace(bench.blob.header, **changes)
    promise = msgspec.structs.replace(bench.promise, header=header)
    answer = await bench.put(sign(promise), bench.rows, header.commitment.hex())
    assert answer.error == (400, "bad_promise")


async def test_a_row_count_that_does_not_fit_the_stakes_is_refused(bench: Bench) -> None:
    header = msgspec.structs.replace(bench.blob.header, n=25)
    promise = msgspec.structs.replace(bench.promise, header=header)
    answer = await bench.put(sign(promise), bench.rows, header.commitment.hex())
    assert answer.error == (400, "wrong_row_count")


async def test_the_last_height_of_a_promise_still_counts(bench: Bench) -> None:
    promise = msgspec.structs.replace(bench.promise, expiry_height=10)
    assert (await bench.put(sign(promise), bench.rows)).status == 200


async def test_promises_signed_by_others_are_refused(bench: Bench) -> None:
    stranger = PrivateKey.from_seed("stranger")
    by_stranger = sign(bench.promise, stranger)
    forged = SignedPromise(bench.promise, PUBLISHER.public_key, by_stranger.signature)
    replayed = SignedPromise(
        msgspec.structs.replace(bench.promise, expiry_height=5000), PUBLISHER.public_key, sign(bench.promise).signature
    )
    short = SignedPromise(bench.promise, PUBLISHER.public_key, b"")
    assert (await bench.put(by_stranger, bench.rows)).error == (403, "wrong_publisher")
    for signed in (forged, replayed, short):
        assert (await bench.put(signed, bench.rows)).error == (403, "bad_signature")
    assert nothing_stored(bench)


async def test_promises_that_the_chain_would_not_honour_are_refused_with_its_reason(bench: Bench) -> None:
    bench.net.chain.refusal = "the balance of the publisher is too small"
    answer = await bench.put(sign(bench.promise), bench.rows)
    assert answer.error == (403, "may_not_publish")
    assert b"balance of the publisher" in answer.body
    assert nothing_stored(bench)


async def test_a_chain_that_cannot_be_asked_is_a_passing_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(version: int) -> None:
        raise ChainUnavailable("the application does not answer")

    monkeypatch.setattr(bench.net.chain, "service_set", unreachable)
    answer = await bench.put(sign(bench.promise), bench.rows)
    assert answer.error == (503, "chain_unavailable")
    assert "Retry-After" in answer.headers


async def test_a_node_outside_the_set_takes_nothing(bench: Bench) -> None:
    others = msgspec.structs.replace(bench.member, service_key=PUBLISHER.public_key)
    bench.net.chain.sets[1] = msgspec.structs.replace(
        bench.net.members, members=(others, *bench.net.members.members[1:])
    )
    assert (await bench.put(sign(bench.promise), bench.rows)).error == (409, "not_a_member")


async def test_exactly_the_assigned_rows_are_taken(bench: Bench) -> None:
    other = bench.net.assigned(bench.blob)[1]
    for rows in (
        bench.rows[:-1],
        [*bench.rows, *proven_rows(bench.blob, other[:1])],
        [*bench.rows, bench.rows[0]],
        [*bench.rows[:-1], bench.rows[0]],
        proven_rows(bench.blob, other),
        [],
        [msgspec.structs.replace(bench.rows[0], index=-1), *bench.rows[1:]],
        [msgspec.structs.replace(bench.rows[0], data=b"short"), *bench.rows[1:]],
    ):
        assert (await bench.put(sign(bench.promise), rows)).error == (422, "wrong_rows")
    assert nothing_stored(bench)


@pytest.mark.parametrize("change", [wrong_bytes, wrong_proof])
async def test_rows_that_do_not_prove_are_refused(bench: Bench, change: Any) -> None:
    answer = await bench.put(sign(bench.promise), [*bench.rows[:-1], change(bench.rows[-1])])
    assert answer.error == (422, "bad_row")
    assert nothing_stored(bench)


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


async def test_a_promise_under_another_blobs_address_is_refused(bench: Bench) -> None:
    assert (await bench.put(sign(bench.promise), bench.rows, "0" * 64)).error == (400, "wrong_commitment")


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


async def start_upload(bench: Bench, *, announced: int, sent: int = 0) -> asyncio.StreamWriter:
    """A client that announces more than it sends."""
    _, writer = await asyncio.open_connection("127.0.0.1", int(bench.node.url.rsplit(":", 1)[1]))
    path = f"/da/v1/blobs/{bench.blob.commitment.hex()}"
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: node\r\nContent-Length: {announced}\r\n\r\n".encode() + bytes(sent))
    await writer.drain()
    return writer


def test_a_byte_budget_lends_what_it_has_and_takes_it_back() -> None:
    budget = ByteBudget(100)
    with budget.lease() as first, budget.lease() as second:
        assert first.take(60)
        assert not second.take(41)
        assert second.take(40)
    assert budget.free == 100


async def test_a_full_disk_is_said_clearly(bench: Bench) -> None:
    bench.node.store.budget_bytes = 1000
    assert (await bench.put(sign(bench.promise), bench.rows)).error == (507, "disk_full")
    assert nothing_stored(bench)


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
