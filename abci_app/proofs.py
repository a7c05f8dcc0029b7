"""Proofs that a key holds a value, or holds none, in the state behind an app hash. Needs no store: clients use it.

The state is a Merkle tree of fixed depth over 2^16 buckets. A key belongs to the bucket named by the first two bytes
of SHA-256(key). A bucket is its entries SHA-256(key) || SHA-256(value), 64 bytes each, sorted and packed; its hash is
tagged, and so is that of an inner node, which has 16 children. The root over all buckets is the app hash.
A proof carries the whole bucket, so it shows absence as well as presence.

Sixteen children instead of two: a block changes thousands of buckets, and each then costs about one hash instead of
eight, since neighbours share their parents; a proof grows from 16 to 60 sibling hashes.
"""

from typing import Final

import msgspec

from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import HASH_BYTES, sha256, tagged_hash

ARITY: Final = 16
"""Children of a node."""
TREE_DEPTH: Final = 4
"""Levels of nodes above the buckets."""
NUM_BUCKETS: Final = ARITY**TREE_DEPTH
ENTRY_BYTES: Final = 2 * HASH_BYTES
PROOF_TYPE: Final = "outerstep/key-proof/1"
"""`type` of the proof operator in answers of ABCI Query."""


class ProofError(ValueError):
    """The proof does not show what it claims; the text says why."""


class KeyProof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """That `key` holds `value` (None: holds nothing) in the state with a certain app hash."""

    key: bytes
    value: bytes | None
    bucket: bytes
    """The packed entries of the key's bucket."""
    path: tuple[bytes, ...]
    """For each of the 4 levels from the bucket upwards the 15 sibling hashes, joined, in order."""

    def to_bytes(self) -> bytes:
        """Canonical encoding, as ABCI Query carries it."""
        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "KeyProof":
        """Raises: ProofError when `data` is not the encoding of a proof."""
        try:
            return decode(data, cls)
        except EncodingError as error:
            raise ProofError(f"not a proof: {error}") from error


def bucket_index(key_hash: bytes) -> int:
    """The bucket, 0 to 65535, of a key with SHA-256 `key_hash`."""
    return int.from_bytes(key_hash[:2], "big")


def bucket_hash(packed: bytes) -> bytes:
    """Hash of a bucket's packed entries, 32 bytes; an empty bucket has one too."""
    return tagged_hash("outerstep/state-bucket/1", packed)


def node_hash(children: bytes | bytearray) -> bytes:
    """Hash of an inner node with these 16 hashes, joined, as children."""
    return tagged_hash("outerstep/state-node/1", children)


def find_entry(packed: bytes, key_hash: bytes) -> tuple[int, bool]:
    """(Byte offset where the entry of `key_hash` stands or would stand, whether it is there), by bisection."""
    low, high = 0, len(packed) // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if packed[middle * ENTRY_BYTES : middle * ENTRY_BYTES + HASH_BYTES] < key_hash:
            low = middle + 1
        else:
            high = middle
    offset = low * ENTRY_BYTES
    return offset, packed[offset : offset + HASH_BYTES] == key_hash


def check_key_proof(app_hash: bytes, proof: KeyProof) -> None:
    """Return when `proof` is true of the state with `app_hash`. Compare `proof.key` with the key asked for, too.

    Raises: ProofError naming what is wrong: the form of the bucket or path, the root, the value, a denied entry.
    """
    key_hash = sha256(proof.key)
    _check_bucket(proof.bucket, bucket_index(key_hash))
    if _root_of(proof, bucket_index(key_hash)) != app_hash:
        raise ProofError("the path does not lead to the app hash")
    offset, found = find_entry(proof.bucket, key_hash)
    if proof.value is None:
        if found:
            raise ProofError("says that the key is absent, but its bucket holds it")
        return
    if not found:
        raise ProofError("says that the key has a value, but its bucket does not hold it")
    if proof.bucket[offset + HASH_BYTES : offset + ENTRY_BYTES] != sha256(proof.value):
        raise ProofError("the bucket holds another value for the key")


def verify_key_proof(app_hash: bytes, proof: KeyProof) -> bool:
    """Whether `proof` is true of the state with `app_hash`; `check_key_proof` says why not."""
    try:
        check_key_proof(app_hash, proof)
    except ProofError:
        return False
    return True


def _check_bucket(packed: bytes, index: int) -> None:
    if len(packed) % ENTRY_BYTES:
        raise ProofError(f"the bucket has {len(packed)} bytes, not a multiple of {ENTRY_BYTES}")
    previous = b""
    for offset in range(0, len(packed), ENTRY_BYTES):
        key_hash = packed[offset : offset + HASH_BYTES]
        if key_hash <= previous:
            raise ProofError("the bucket's entries are not sorted, or one stands there twice")
        if bucket_index(key_hash) != index:
            raise ProofError("the bucket holds an entry of another bucket")
        previous = key_hash


def _root_of(proof: KeyProof, index: int) -> bytes:
    width = (ARITY - 1) * HASH_BYTES
    if len(proof.path) != TREE_DEPTH or any(len(siblings) != width for siblings in proof.path):
        raise ProofError(f"the path is not {TREE_DEPTH} times {ARITY - 1} hashes of {HASH_BYTES} bytes")
    node = bucket_hash(proof.bucket)
    for siblings in proof.path:
        index, place = divmod(index, ARITY)
        before = place * HASH_BYTES
        node = node_hash(siblings[:before] + node + siblings[before:])
    return node
