"""Binary Merkle trees over lists of leaves: the tree of RFC 6962, section 2.1.

Leaves and inner nodes carry different prefixes (0x00, 0x01), so an inner node never passes for a leaf; an odd node is
promoted, never paired with itself. The tree of n leaves splits at the largest power of two below n, hence a run of
2^h leaves that starts at a multiple of 2^h is a subtree of its own.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from primitives.hashing import HASH_BYTES

EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
"""Root of a tree without leaves (RFC 6962)."""

MAX_PROOF_HASHES: Final = 64


class MerkleProof(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Shows that a leaf stands at `index` in a tree of `total` leaves; `path` runs from the leaf's sibling upwards."""

    index: int
    total: int
    path: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=MAX_PROOF_HASHES)]


def leaf_hash(data: bytes | bytearray | memoryview) -> bytes:
    """SHA-256(0x00 || data)."""
    hasher = hashlib.sha256(b"\x00")
    hasher.update(data)
    return hasher.digest()


def inner_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class MerkleTree:
    """A whole tree in memory, for one root and many proofs. Takes the hashes of the leaves (see `leaf_hash`)."""

    def __init__(self, leaf_hashes: Sequence[bytes]) -> None:
        level = list(leaf_hashes)
        self._levels = [level]
        while len(level) > 1:
            above = [inner_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            if len(level) % 2:
                above.append(level[-1])
            self._levels.append(above)
            level = above

    @classmethod
    def of(cls, leaves: Sequence[bytes]) -> "MerkleTree":
        """The tree over the leaves themselves."""
        return cls([leaf_hash(leaf) for leaf in leaves])

    @property
    def total(self) -> int:
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        return self._levels[-1][0] if self._levels[0] else EMPTY_ROOT

    def prove(self, index: int) -> MerkleProof:
        """The proof of the leaf at `index`.

        Raises: IndexError when there is no such leaf.
        """
        if not 0 <= index < self.total:
            raise IndexError(f"leaf {index} of a tree with {self.total} leaves")
        path: list[bytes] = []
        position = index
        for level in self._levels[:-1]:
            sibling = position ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            position //= 2
        return MerkleProof(index=index, total=self.total, path=tuple(path))


def merkle_root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Root over the hashes of the leaves."""
    return MerkleTree(leaf_hashes).root


def verify_proof(root: bytes, hashed_leaf: bytes, proof: MerkleProof) -> bool:
    """Whether `proof` leads from `hashed_leaf` (see `leaf_hash`) to `root`. Any malformed proof is simply False."""
    if not 0 <= proof.index < proof.total or len(proof.path) > MAX_PROOF_HASHES:
        return False
    node, position, width, used = hashed_leaf, proof.index, proof.total, 0
    while width > 1:
        if position ^ 1 < width:
            if used == len(proof.path) or len(proof.path[used]) != HASH_BYTES:
                return False
            sibling = proof.path[used]
            node = inner_hash(sibling, node) if position % 2 else inner_hash(node, sibling)
            used += 1
        position //= 2
        width = (width + 1) // 2
    return used == len(proof.path) and node == root
