"""The bytes that a validator signs with its precommit, and whether a signature over them is its own."""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from node.light.blocks import FOR_BLOCK, Commit, CommitSignature
from node.light.hashes import block_id, bytes_field, fixed64_field, message_field, timestamp, varint, varint_field

PRECOMMIT: Final = 2


def sign_bytes(chain_id: str, commit: Commit, vote: CommitSignature) -> bytes:
    """CanonicalVote of `vote` in `commit`, with its length in front. A vote for nil names no block."""
    encoded = varint_field(1, PRECOMMIT) + fixed64_field(2, commit.height) + fixed64_field(3, commit.round)
    if vote.flag == FOR_BLOCK:
        encoded += message_field(4, block_id(commit.block_id))
    encoded += message_field(5, timestamp(vote.time_ns)) + bytes_field(6, chain_id.encode())
    return varint(len(encoded)) + encoded


def is_signed(key: bytes, chain_id: str, commit: Commit, vote: CommitSignature) -> bool:
    """Whether `vote` carries the signature of the ed25519 key (32 bytes); malformed ones are simply False."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(vote.signature, sign_bytes(chain_id, commit, vote))
    except (InvalidSignature, ValueError):
        return False
    return True
