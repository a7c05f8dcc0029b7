"""What a snapshot consists of, byte for byte. Equal states give equal snapshots; each chunk is verified by itself.

The state's 16^4 buckets (abci_app.proofs) are cut into 16^depth runs of equal length, each a subtree of the tree whose
root is the app hash. Chunk i holds all of run i: 4 bytes with the number of items, then of each item the length of
its key, the length of its value (4 bytes each), key and value, in the order of SHA-256(key). Integers are big-endian.
The metadata names the root of every run, so it leads to the app hash, and a chunk is checked against its own root.

`depth` is the smallest at which no chunk is larger than MAX_CHUNK_BYTES, or 4 when a single bucket is.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from abci_app.proofs import ARITY, NUM_BUCKETS, TREE_DEPTH, bucket_hash, bucket_index, node_hash
from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import HASH_BYTES, sha256, tagged_hash

FORMAT: Final = 1
MAX_CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What the depth is chosen for."""
LARGEST_CHUNK_BYTES: Final = 15 * 1024 * 1024
"""CometBFT carries less than 16 MB; a bucket that is larger by itself cannot be part of a snapshot."""
COUNT_BYTES: Final = 4
ITEM_HEAD_BYTES: Final = 8
Item = tuple[bytes, bytes]
"""Key and value of the state."""


class SnapshotInvalid(ValueError):
    """Bytes of a peer that are not what they should be; the text says why."""


class Metadata(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a peer tells of a snapshot before its chunks, in at most 2 MiB."""

    depth: int
    """0 to 4: there are 16^depth chunks."""
    roots: bytes
    """The root of each chunk's subtree, 32 bytes each, in order."""

    @property
    def num_chunks(self) -> int:
        count: int = ARITY**self.depth
        return count

    def root(self, index: int) -> bytes:
        """Of the subtree of chunk `index`."""
        return self.roots[index * HASH_BYTES : (index + 1) * HASH_BYTES]

    def app_hash(self) -> bytes:
        """What the roots lead to."""
        return merkle_root([self.root(index) for index in range(self.num_chunks)])

    def to_bytes(self) -> bytes:
        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Metadata":
        """Raises: SnapshotInvalid."""
        try:
            found = decode(data, cls)
        except EncodingError as error:
            raise SnapshotInvalid(f"the metadata is malformed: {error}") from error
        if not 0 <= found.depth <= TREE_DEPTH:
            raise SnapshotInvalid(f"the metadata has depth {found.depth}; it should be 0 to {TREE_DEPTH}")
        if len(found.roots) != HASH_BYTES * found.num_chunks:
            raise SnapshotInvalid(f"the metadata has {len(found.roots)} bytes of roots for depth {found.depth}")
        return found


def snapshot_hash(height: int, metadata: bytes) -> bytes:
    """The snapshot's name among peers, 32 bytes."""
    return tagged_hash(f"outerstep/snapshot/{FORMAT}", height.to_bytes(8, "big") + metadata)


def merkle_root(nodes: Sequence[bytes]) -> bytes:
    """The root over a power of 16 of neighbouring nodes."""
    while len(nodes) > 1:
        nodes = [node_hash(b"".join(nodes[i : i + ARITY])) for i in range(0, len(nodes), ARITY)]
    return nodes[0]


def item_size(item: Item) -> int:
    """Bytes that an item takes in a chunk."""
    return ITEM_HEAD_BYTES + len(item[0]) + len(item[1])


def encode_item(item: Item) -> bytes:
    """As it stands in a chunk."""
    key, value = item
    return len(key).to_bytes(4, "big") + len(value).to_bytes(4, "big") + key + value


def encode_chunk(items: Sequence[Item]) -> bytes:
    """A whole chunk of items that stand in the order of SHA-256(key)."""
    return len(items).to_bytes(COUNT_BYTES, "big") + b"".join(map(encode_item, items))


def choose_depth(bucket_bytes: Sequence[int], *, max_chunk_bytes: int = MAX_CHUNK_BYTES) -> int:
    """The depth for a state whose buckets take `bucket_bytes` (65,536 numbers) in chunks.

    Raises: SnapshotInvalid when a bucket is too large for any chunk.
    """
    if max(bucket_bytes) + COUNT_BYTES > LARGEST_CHUNK_BYTES:
        index = max(range(NUM_BUCKETS), key=bucket_bytes.__getitem__)
        raise SnapshotInvalid(f"bucket {index} has {bucket_bytes[index]} bytes; a chunk can have {LARGEST_CHUNK_BYTES}")
    sizes, depth = list(bucket_bytes), TREE_DEPTH
    while depth:
        sizes = [sum(sizes[i : i + ARITY]) for i in range(0, len(sizes), ARITY)]
        if max(sizes) + COUNT_BYTES > max_chunk_bytes:
            break
        depth -= 1
    return depth


class VerifiedChunk(msgspec.Struct, frozen=True):
    """The items of one run of buckets, proven to be all of them."""

    items: list[Item]
    buckets: dict[int, bytes]
    """Packed entries of each bucket that is not empty, as in abci_app.proofs."""


def verify_chunk(metadata: Metadata, index: int, data: bytes) -> VerifiedChunk:
    """The content of chunk `index`, once its root is the one that `metadata` names.

    Raises: SnapshotInvalid for every other bytes than the one chunk that has this root.
    """
    items = decode_chunk(data)
    width = NUM_BUCKETS // metadata.num_chunks
    first = index * width
    entries, previous = dict[int, list[bytes]](), b""
    for key, value in items:
        key_hash = sha256(key)
        if key_hash <= previous:
            raise SnapshotInvalid("keys are out of order, or one stands there twice")
        previous = key_hash
        entries.setdefault(bucket_index(key_hash), []).append(key_hash + sha256(value))
    if any(not first <= bucket < first + width for bucket in entries):
        raise SnapshotInvalid("it holds keys of another chunk")
    buckets = {bucket: b"".join(packed) for bucket, packed in entries.items()}
    if run_root(buckets, first, width) != metadata.root(index):
        raise SnapshotInvalid("its content does not have the root that the metadata names")
    return VerifiedChunk(items, buckets)


def run_root(buckets: dict[int, bytes], first: int, width: int) -> bytes:
    """The root over buckets `first` to `first + width` (a power of two), given those that are not empty."""
    empty = bucket_hash(b"")
    nodes = [bucket_hash(buckets[i]) if i in buckets else empty for i in range(first, first + width)]
    return merkle_root(nodes)


def decode_chunk(data: bytes) -> list[Item]:
    """The items that `data` lists, whatever they are.

    Raises: SnapshotInvalid when it is too large or does not consist of whole items alone.
    """
    if not COUNT_BYTES <= len(data) <= LARGEST_CHUNK_BYTES:
        raise SnapshotInvalid(f"it has {len(data)} bytes; a chunk has {COUNT_BYTES} to {LARGEST_CHUNK_BYTES}")
    items = list(read_items(memoryview(data)[COUNT_BYTES:]))
    if len(items) != int.from_bytes(data[:COUNT_BYTES], "big"):
        raise SnapshotInvalid("it holds another number of items than it says")
    return items


def read_items(data: memoryview) -> Iterable[Item]:
    """Items one after another, to the end of `data`.

    Raises: SnapshotInvalid when it ends within one.
    """
    place, end = 0, len(data)
    while place < end:
        body = place + ITEM_HEAD_BYTES
        key_end = body + int.from_bytes(data[place : place + 4], "big")
        next_place = key_end + int.from_bytes(data[place + 4 : body], "big")
        if body > end or next_place > end:
            raise SnapshotInvalid("it ends within an item")
        yield bytes(data[body:key_end]), bytes(data[key_end:next_place])
        place = next_place
