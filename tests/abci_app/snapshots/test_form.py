"""The form of a snapshot: one byte string per state, and no other passes."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abci_app.proofs import NUM_BUCKETS
from abci_app.snapshots.form import (
    COUNT_BYTES,
    LARGEST_CHUNK_BYTES,
    Item,
    Metadata,
    SnapshotInvalid,
    choose_depth,
    encode_chunk,
    encode_item,
    merkle_root,
    run_root,
    verify_chunk,
)
from abci_app.state import MemoryState
from abci_app.store import state_root
from primitives.hashing import sha256
from tests.abci_app.snapshots.kit import some_state

DEPTH = 1
NUM_CHUNKS = 16
ANY_BYTES = st.binary(max_size=40)


@dataclass
class Example:
    """Sixteen chunks of a state, made here from the definition alone."""

    metadata: Metadata
    items: list[list[Item]]
    chunks: list[bytes]


def make_example() -> Example:
    items: list[list[Item]] = [[] for _ in range(NUM_CHUNKS)]
    for key, value in sorted(some_state(90).items(), key=lambda item: sha256(item[0])):
        items[sha256(key)[0] >> 4].append((key, value))
    width = NUM_BUCKETS // NUM_CHUNKS
    roots = []
    for index, run in enumerate(items):
        buckets: dict[int, bytes] = {}
        for key, value in run:
            bucket = int.from_bytes(sha256(key)[:2], "big")
            buckets[bucket] = buckets.get(bucket, b"") + sha256(key) + sha256(value)
        roots.append(run_root(buckets, index * width, width))
    return Example(Metadata(DEPTH, b"".join(roots)), items, [encode_chunk(run) for run in items])


EXAMPLE = make_example()
CHUNK = next(i for i, run in enumerate(EXAMPLE.items) if len(run) > 3)


def test_the_roots_lead_to_the_app_hash_and_every_chunk_verifies() -> None:
    assert EXAMPLE.metadata.app_hash() == state_root(MemoryState(some_state(90)))
    found = [item for i, data in enumerate(EXAMPLE.chunks) for item in verify_chunk(EXAMPLE.metadata, i, data).items]
    assert dict(found) == some_state(90)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_chunk_with_any_bit_changed_is_refused(data: st.DataObject) -> None:
    good = bytearray(EXAMPLE.chunks[CHUNK])
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    good[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotInvalid):
        verify_chunk(EXAMPLE.metadata, CHUNK, bytes(good))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200) | st.lists(st.tuples(ANY_BYTES, ANY_BYTES), max_size=4).map(encode_chunk))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotInvalid):
        verify_chunk(EXAMPLE.metadata, CHUNK, data)


def foreign_item() -> Item:
    return EXAMPLE.items[(CHUNK + 1) % NUM_CHUNKS][0]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([*EXAMPLE.items[CHUNK][::-1]], "out of order"),
        ([EXAMPLE.items[CHUNK][0], *EXAMPLE.items[CHUNK]], "stands there twice"),
        (EXAMPLE.items[CHUNK][1:], "does not have the root"),
        (EXAMPLE.items[(CHUNK + 1) % NUM_CHUNKS], "keys of another chunk"),
        (sorted([*EXAMPLE.items[CHUNK], foreign_item()], key=lambda item: sha256(item[0])), "keys of another chunk"),
        ([], "does not have the root"),
    ],
)
def test_chunks_of_other_items_are_refused(items: list[Item], reason: str) -> None:
    with pytest.raises(SnapshotInvalid, match=reason):
        verify_chunk(EXAMPLE.metadata, CHUNK, encode_chunk(items))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it has 0 bytes"),
        (b"\x00" * 3, "it has 3 bytes"),
        (b"\x00" * (LARGEST_CHUNK_BYTES + 1), "it has 15728641 bytes"),
        (EXAMPLE.chunks[CHUNK][:-1], "within an item"),
        (EXAMPLE.chunks[CHUNK] + b"\x00", "within an item"),
        (EXAMPLE.chunks[CHUNK] + encode_item((b"", b"")), "another number of items"),
        (b"\xff" * COUNT_BYTES + EXAMPLE.chunks[CHUNK][COUNT_BYTES:], "another number of items"),
        (b"\x00\x00\x00\x01" + b"\xff" * 8, "within an item"),
    ],
)
def test_malformed_chunks_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(SnapshotInvalid, match=reason):
        verify_chunk(EXAMPLE.metadata, CHUNK, data)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=100))
def test_metadata_of_any_bytes_is_read_or_refused(data: bytes) -> None:
    try:
        found = Metadata.from_bytes(data)
    except SnapshotInvalid:
        return
    assert found.to_bytes() == data
    assert len(found.roots) == 32 * found.num_chunks


# --- how many chunks ------------------------------------------------------------------------------------------------
def test_the_depth_is_the_smallest_whose_chunks_are_small_enough() -> None:
    assert choose_depth([0] * NUM_BUCKETS) == 0
    assert choose_depth([10] * NUM_BUCKETS, max_chunk_bytes=10 * NUM_BUCKETS + COUNT_BYTES) == 0
    assert choose_depth([10] * NUM_BUCKETS, max_chunk_bytes=10 * NUM_BUCKETS + COUNT_BYTES - 1) == 1
    assert choose_depth([10] * NUM_BUCKETS, max_chunk_bytes=14) == 4
    uneven = [0] * NUM_BUCKETS
    uneven[7] = uneven[8] = 100
    assert choose_depth(uneven, max_chunk_bytes=104) == 4
    uneven[7], uneven[16] = 0, 100
    assert choose_depth(uneven, max_chunk_bytes=104) == 3


def test_metadata_of_the_deepest_snapshot_fits_into_a_message_of_cometbft() -> None:
    assert len(Metadata(4, b"\xff" * 32 * NUM_BUCKETS).to_bytes()) < 4_000_000


def test_one_large_bucket_is_a_chunk_of_its_own_and_one_too_large_is_explained() -> None:
    sizes = [0] * NUM_BUCKETS
    sizes[3] = LARGEST_CHUNK_BYTES - COUNT_BYTES
    assert choose_depth(sizes) == 4
    sizes[3] += 1
    with pytest.raises(SnapshotInvalid, match="bucket 3 has"):
        choose_depth(sizes)


def test_the_root_over_one_node_is_that_node() -> None:
    assert merkle_root([b"x" * 32]) == b"x" * 32
