"""Which uploads a row server takes, and why it refuses the others."""

import asyncio
from typing import Any

import msgspec
import pytest

from da_layer.errors import ChainUnavailable
from da_layer.wire import SignedPromise
from primitives.blobs import Attestation
from primitives.encoding import decode
from primitives.keys import PrivateKey, verify_signature
from tests.da_layer.bench import Bench, nothing_stored
from tests.da_layer.network import (
    PUBLISHER,
    proven_rows,
    sign,
    wrong_bytes,
    wrong_proof,
)


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


async def test_a_promise_under_another_blobs_address_is_refused(bench: Bench) -> None:
    assert (await bench.put(sign(bench.promise), bench.rows, "0" * 64)).error == (400, "wrong_commitment")


async def test_a_full_disk_is_said_clearly(bench: Bench) -> None:
    bench.node.store.budget_bytes = 1000
    assert (await bench.put(sign(bench.promise), bench.rows)).error == (507, "disk_full")
    assert nothing_stored(bench)
