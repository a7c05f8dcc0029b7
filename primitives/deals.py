"""Storage deals, as the chain and the providers name and sign them.

A file is cut into leaves of 4 KiB; the Merkle root over the leaves and the size give the file's root, which is its
address. A segment is 64 leaves (256 KiB), the unit of transfer: an aligned subtree, so segments prove against the
same root. A file of 0 bytes has no leaf and a root all the same.
"""

from typing import Final, Literal

from primitives.encoding import encode
from primitives.hashing import tagged_hash

LEAF_BYTES: Final = 4096
LEAVES_PER_SEGMENT: Final = 64
SEGMENT_BYTES: Final = LEAF_BYTES * LEAVES_PER_SEGMENT

Tier = Literal["hot", "temporary"]
"""hot: kept until its end height. temporary: cheaper, gone after release or at its end height."""
TIERS: Final[tuple[Tier, ...]] = ("hot", "temporary")


def file_root(size: int, merkle_root: bytes) -> bytes:
    """The address of a file: binds its size in bytes and the Merkle root over its 4 KiB leaves."""
    return tagged_hash("outerstep/file/1", encode([size, merkle_root]))


def leaf_count(size: int) -> int:
    """How many leaves a file of `size` bytes has; 0 for an empty one."""
    return -(-size // LEAF_BYTES)


def segment_count(size: int) -> int:
    """How many segments a file of `size` bytes has; 0 for an empty one."""
    return -(-size // SEGMENT_BYTES)


def receipt_digest(chain_id: str, deal_id: int, root: bytes, size: int) -> bytes:
    """What a provider signs with its service key once it holds every byte of the deal's file, 32 bytes.

    Bound to the deal's id, so a receipt for another deal of the same file, or of a deleted one, is worth nothing.
    """
    return tagged_hash("outerstep/deal-receipt/1", encode([chain_id, deal_id, root, size]))
