"""Blob to rows and back: parameters at their borders, any k of n, canonical form, wrong encodings."""

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from da_layer.coding import EncodedBlob, decode_rows, encode_blob, verify_row
from da_layer.errors import InvalidBlob, InvalidEncoding, NotEnoughRows, WrongRow
from primitives.blobs import BlobHeader, row_size_for
from primitives.merkle import MerkleProof, MerkleTree

CODECS = ["rs8", "isal"]


def blob_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def commit_to(header: BlobHeader, rows: list[bytes]) -> BlobHeader:
    """The header that commits to other rows."""
    return msgspec.structs.replace(header, rows_root=MerkleTree.of(rows).root)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int]:
    k = draw(st.sampled_from([1, 2, 3, 10, 32, 85]) | st.integers(1, 40))
    return k, draw(st.sampled_from([k, k + 1, min(3 * k, 255)]) | st.integers(k, min(4 * k, 255)))


@settings(max_examples=40, deadline=None)
@given(
    codec=st.sampled_from(CODECS), shape=shapes(), data=st.binary(min_size=1, max_size=5000), seed=st.integers(0, 99)
)
def test_any_k_rows_restore_the_blob(codec: str, shape: tuple[int, int], data: bytes, seed: int) -> None:
    k, n = shape
    blob = encode_blob(data, k=k, n=n, codec=codec)
    chosen = random.Random(seed).sample(range(n), k)
    assert decode_rows(blob.header, {index: blob.rows[index] for index in chosen}) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("lost", list(itertools.combinations(range(6), 4)))
def test_every_choice_of_two_of_six_rows_restores_the_blob(codec: str, lost: tuple[int, ...]) -> None:
    blob = encode_blob(blob_bytes(100), k=2, n=6, codec=codec)
    kept = {index: blob.rows[index] for index in range(6) if index not in lost}
    assert decode_rows(blob.header, kept) == blob_bytes(100)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 2), (1, 255), (4, 4), (85, 255), (127, 255), (254, 255), (255, 255)])
@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_border_parameters_round_trip(codec: str, k: int, n: int, size: int) -> None:
    blob = encode_blob(blob_bytes(size), k=k, n=n, codec=codec)
    last = {index: blob.rows[index] for index in range(n - k, n)}
    assert decode_rows(blob.header, last) == blob_bytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_every_size_up_to_three_rows_over_round_trips(codec: str) -> None:
    """FAULTS D11, D29: the last row may hold anything from one byte to a full row, or nothing at all."""
    for size in [*range(1, 20), 255, 256, 257, 383, 384, 385, 511, 512, 513, 767, 768, 769]:
        blob = encode_blob(blob_bytes(size), k=6, n=7, codec=codec)
        assert decode_rows(blob.header, {index: blob.rows[index] for index in range(1, 7)}) == blob_bytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_rows_longer_than_a_coding_stripe_round_trip(codec: str) -> None:
    data = blob_bytes(3 * 16 * 1024 * 2 + 5)
    blob = encode_blob(data, k=3, n=9, codec=codec)
    assert decode_rows(blob.header, {index: blob.rows[index] for index in (2, 5, 8)}) == data


@pytest.mark.parametrize(
    ("k", "n", "codec"),
    [
        (0, 3, "rs8"),
        (-1, 3, "isal"),
        (3, 2, "rs8"),
        (250, 375, "isal"),
        (128, 256, "isal"),
        (256, 512, "rs8"),
        (True, 3, "isal"),
        (2.0, 3, "rs8"),
        (2, 3, "zfec"),
        (2, 3, ""),
    ],
)
def test_parameters_outside_the_code_are_refused_at_construction(k: int, n: int, codec: str) -> None:
    with pytest.raises(InvalidBlob):
        encode_blob(b"data", k=k, n=n, codec=codec)


def test_empty_and_oversized_blobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("da_layer.coding.MAX_BLOB_BYTES", 1000)
    encode_blob(bytes(1000), k=2, n=3)
    for size in (0, 1001):
        with pytest.raises(InvalidBlob, match=f"blob size is {size}"):
            encode_blob(bytes(size), k=2, n=3)


def test_rows_are_the_blob_row_by_row_with_zeros_at_the_end() -> None:
    blob = encode_blob(blob_bytes(300), k=4, n=6)
    assert blob.header.row_size == row_size_for(300, 4) == 128
    assert b"".join(blob.rows[:4]) == blob_bytes(300) + bytes(4 * 128 - 300)


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_encoding_is_found_with_every_choice_of_rows(codec: str) -> None:
    """Parity of other data, committed to: no choice of k rows yields a blob."""
    good = encode_blob(blob_bytes(200), k=2, n=5, codec=codec)
    other = encode_blob(blob_bytes(200, seed=1), k=2, n=5, codec=codec)
    rows = [bytes(row) for row in good.rows[:2] + other.rows[2:]]
    header = commit_to(good.header, rows)
    for chosen in itertools.combinations(range(5), 2):
        with pytest.raises(InvalidEncoding):
            decode_rows(header, {index: rows[index] for index in chosen})


@pytest.mark.parametrize("codec", CODECS)
def test_one_wrong_parity_row_that_is_never_read_is_found_all_the_same(codec: str) -> None:
    good = encode_blob(blob_bytes(200), k=2, n=5, codec=codec)
    rows = [bytes(row) for row in good.rows]
    rows[4] = bytes(len(rows[4]))
    with pytest.raises(InvalidEncoding):
        decode_rows(commit_to(good.header, rows), {0: rows[0], 1: rows[1]})


@pytest.mark.parametrize("codec", CODECS)
def test_padding_that_is_not_zero_is_refused(codec: str) -> None:
    """FAULTS D22: the same payload must not have two commitments."""
    full = encode_blob(blob_bytes(199) + b"x", k=2, n=5, codec=codec)
    header = msgspec.structs.replace(full.header, size=199)
    for chosen in itertools.combinations(range(5), 2):
        with pytest.raises(InvalidEncoding, match="padding"):
            decode_rows(header, {index: full.rows[index] for index in chosen})


@pytest.mark.parametrize(
    "change",
    [
        {"row_size": 192},
        {"row_size": 0},
        {"size": 2**31},
        {"size": 0},
        {"k": 6},
        {"n": 256},
        {"version": 2},
        {"codec": "zfec"},
        {"rows_root": b"short"},
        {"size": -1},
    ],
)
def test_headers_out_of_form_are_refused_before_anything_is_decoded(change: dict[str, object]) -> None:
    blob = encode_blob(blob_bytes(200), k=2, n=5)
    with pytest.raises(InvalidBlob):
        decode_rows(msgspec.structs.replace(blob.header, **change), dict(enumerate(blob.rows)))


def test_too_few_rows_say_how_many_there_are() -> None:
    blob = encode_blob(blob_bytes(200), k=3, n=5)
    with pytest.raises(NotEnoughRows) as caught:
        decode_rows(blob.header, {0: blob.rows[0], 4: blob.rows[4]})
    assert (caught.value.have, caught.value.need) == (2, 3)


@pytest.mark.parametrize("index", [5, -1, 255, True])
def test_row_numbers_that_the_blob_has_not_are_refused(index: int) -> None:
    """FAULTS D19."""
    blob = encode_blob(blob_bytes(200), k=2, n=5)
    with pytest.raises(WrongRow):
        decode_rows(blob.header, {0: blob.rows[0], index: blob.rows[1]})


@pytest.mark.parametrize("size", [0, 127, 129])
def test_rows_of_another_size_are_refused(size: int) -> None:
    blob = encode_blob(blob_bytes(200), k=2, n=5)
    with pytest.raises(WrongRow):
        decode_rows(blob.header, {0: blob.rows[0], 3: bytes(size)})


@pytest.fixture(scope="module")
def proven() -> EncodedBlob:
    return encode_blob(blob_bytes(1000), k=3, n=9)


def test_each_row_verifies_under_its_own_number_only(proven: EncodedBlob) -> None:
    for index, other in itertools.product(range(9), repeat=2):
        assert verify_row(proven.header, index, proven.rows[index], proven.prove(other)) == (index == other)


def test_changed_rows_and_forged_proofs_do_not_verify(proven: EncodedBlob) -> None:
    row, proof = bytes(proven.rows[4]), proven.prove(4)
    bad_row = bytes([row[0] ^ 1]) + row[1:]
    assert verify_row(proven.header, 4, row, proof)
    assert not verify_row(proven.header, 4, bad_row, proof)
    assert not verify_row(proven.header, 4, row[:-1], proof)
    for forged in (
        MerkleProof(4, 9, ()),
        MerkleProof(4, 10, proof.path),
        MerkleProof(4, 4, proof.path),
        MerkleProof(4, 9, (*proof.path, bytes(32))),
        MerkleProof(4, 9, (b"short", *proof.path[1:])),
    ):
        assert not verify_row(proven.header, 4, row, forged)


def test_the_memory_of_a_lost_decode_is_not_reused(proven: EncodedBlob) -> None:
    """FAULTS D26: a decode that failed leaves nothing behind for the next one."""
    rows = {index: bytes(proven.rows[index]) for index in (3, 4, 5)}
    with pytest.raises(NotEnoughRows):
        decode_rows(proven.header, {3: rows[3]})
    with pytest.raises(InvalidEncoding):
        decode_rows(proven.header, rows | {4: bytes(proven.header.row_size)})
    assert decode_rows(proven.header, rows) == blob_bytes(1000)
