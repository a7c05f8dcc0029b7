"""The Merkle tree over the buckets of the state, in memory: 2^17 hashes, 4 MiB. Form and hashes: `abci_app.proofs`."""

from collections.abc import Mapping

from abci_app.proofs import NUM_BUCKETS, TREE_DEPTH, bucket_hash
from primitives.hashing import HASH_BYTES
from primitives.merkle import inner_hash

NodePosition = tuple[int, int]
"""(level, index): level 0 holds the bucket hashes, level 16 the root."""


class BucketTree:
    """Starts as the tree of the empty state. `plan` works out new nodes and changes nothing; `apply` sets them.

    One thread changes it at a time; who reads a path beside that holds the store's lock.
    """

    def __init__(self) -> None:
        self._levels: list[bytearray] = []
        node = bucket_hash(b"")
        for level in range(TREE_DEPTH + 1):
            self._levels.append(bytearray(node * (NUM_BUCKETS >> level)))
            node = inner_hash(node, node)

    @property
    def root(self) -> bytes:
        return bytes(self._levels[TREE_DEPTH])

    def plan(self, bucket_hashes: Mapping[int, bytes]) -> dict[NodePosition, bytes]:
        """Every node that changes when the buckets (index -> hash) take new hashes; empty when there are none."""
        nodes: dict[NodePosition, bytes] = {}
        changed = dict(bucket_hashes)
        for level in range(TREE_DEPTH):
            for index, node in changed.items():
                nodes[level, index] = node
            above: dict[int, bytes] = {}
            for index in changed:
                parent = index // 2
                if parent not in above:
                    left = self._changed_or_old(changed, level, 2 * parent)
                    right = self._changed_or_old(changed, level, 2 * parent + 1)
                    above[parent] = inner_hash(left, right)
            changed = above
        for index, node in changed.items():
            nodes[TREE_DEPTH, index] = node
        return nodes

    def apply(self, nodes: Mapping[NodePosition, bytes]) -> None:
        for (level, index), node in nodes.items():
            self._levels[level][index * HASH_BYTES : (index + 1) * HASH_BYTES] = node

    def path(self, index: int) -> tuple[bytes, ...]:
        """The 16 sibling hashes from bucket `index` upwards."""
        siblings = []
        for level in range(TREE_DEPTH):
            siblings.append(self._node(level, index ^ 1))
            index //= 2
        return tuple(siblings)

    def _node(self, level: int, index: int) -> bytes:
        return bytes(self._levels[level][index * HASH_BYTES : (index + 1) * HASH_BYTES])

    def _changed_or_old(self, changed: Mapping[int, bytes], level: int, index: int) -> bytes:
        node = changed.get(index)
        return self._node(level, index) if node is None else node
