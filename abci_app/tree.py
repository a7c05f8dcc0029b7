"""The Merkle tree over the buckets of the state, in memory: 2.1 MiB. Form and hashes: `abci_app.proofs`."""

from collections.abc import Mapping, Sequence
from typing import Final

from abci_app.proofs import ARITY, NUM_BUCKETS, TREE_DEPTH, bucket_hash, node_hash
from primitives.hashing import HASH_BYTES

GROUP_BYTES: Final = ARITY * HASH_BYTES
"""The children of a node, joined."""

TreeChange = Sequence[Mapping[int, bytes]]
"""For each level, buckets first and root last: index of a node -> its new hash."""


class BucketTree:
    """Starts as the tree of the empty state. `plan` works out new nodes and changes nothing; `apply` sets them.

    One thread changes it at a time; who reads a path beside that holds the store's lock.
    """

    def __init__(self) -> None:
        self._levels: list[bytearray] = []
        node = bucket_hash(b"")
        for level in range(TREE_DEPTH + 1):
            self._levels.append(bytearray(node * (NUM_BUCKETS // ARITY**level)))
            node = node_hash(node * ARITY)

    @property
    def root(self) -> bytes:
        return bytes(self._levels[TREE_DEPTH])

    def plan(self, bucket_hashes: Mapping[int, bytes]) -> TreeChange:
        """Every node that changes when the buckets (index -> hash) take new hashes."""
        levels = [bucket_hashes]
        for row in self._levels[:TREE_DEPTH]:
            groups: dict[int, bytearray] = {}
            for index, node in levels[-1].items():
                parent, place = divmod(index, ARITY)
                children = groups.get(parent)
                if children is None:
                    children = groups[parent] = row[parent * GROUP_BYTES : (parent + 1) * GROUP_BYTES]
                children[place * HASH_BYTES : (place + 1) * HASH_BYTES] = node
            levels.append({parent: node_hash(children) for parent, children in groups.items()})
        return levels

    def root_after(self, change: TreeChange) -> bytes:
        """The root once `change` is applied."""
        return change[TREE_DEPTH].get(0, self.root)

    def apply(self, change: TreeChange) -> None:
        for row, nodes in zip(self._levels, change, strict=True):
            for index, node in nodes.items():
                row[index * HASH_BYTES : (index + 1) * HASH_BYTES] = node

    def path(self, index: int) -> tuple[bytes, ...]:
        """The siblings of bucket `index` and of the nodes above it, as `abci_app.proofs.KeyProof.path`."""
        levels = []
        for row in self._levels[:TREE_DEPTH]:
            index, place = divmod(index, ARITY)
            group = row[index * GROUP_BYTES : (index + 1) * GROUP_BYTES]
            del group[place * HASH_BYTES : (place + 1) * HASH_BYTES]
            levels.append(bytes(group))
        return tuple(levels)
