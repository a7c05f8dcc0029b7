"""Hashes of headers and validator sets as CometBFT computes them: Merkle roots over protobuf encodings.

Protobuf as gogoproto writes it: fields in order, zero values left out, but embedded messages that cannot be null are
written even when they are empty.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from node.light.blocks import ADDRESS_BYTES, BlockId, Header, Validator
from primitives.merkle import MerkleTree

NS_PER_S: Final = 1_000_000_000
VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2


def header_hash(header: Header) -> bytes:
    """The block's hash, 32 bytes: root over its 14 fields."""
    version = varint_field(1, header.block_version) + varint_field(2, header.app_version)
    fields = [
        version,
        bytes_field(1, header.chain_id.encode()),
        varint_field(1, header.height),
        timestamp(header.time_ns),
        block_id(header.last_block_id),
        bytes_field(1, header.last_commit_hash),
        bytes_field(1, header.data_hash),
        bytes_field(1, header.validators_hash),
        bytes_field(1, header.next_validators_hash),
        bytes_field(1, header.consensus_hash),
        bytes_field(1, header.app_hash),
        bytes_field(1, header.last_results_hash),
        bytes_field(1, header.evidence_hash),
        bytes_field(1, header.proposer_address),
    ]
    return MerkleTree.of(fields).root


def validators_hash(validators: Sequence[Validator]) -> bytes:
    """Root over keys and powers in the set's order."""
    return MerkleTree.of([_simple_validator(validator) for validator in validators]).root


def validator_address(key: bytes) -> bytes:
    """20 bytes of an ed25519 key."""
    return hashlib.sha256(key).digest()[:ADDRESS_BYTES]


def in_order(validators: Sequence[Validator]) -> tuple[Validator, ...]:
    """Sorted as CometBFT sorts a set."""
    return tuple(sorted(validators, key=lambda validator: (-validator.power, validator_address(validator.key))))


def block_id(block: BlockId) -> bytes:
    """Protobuf of a BlockID, and of a CanonicalBlockID, which has the same fields."""
    parts = varint_field(1, block.parts_total) + bytes_field(2, block.parts_hash)
    return bytes_field(1, block.hash) + message_field(2, parts)


def timestamp(time_ns: int) -> bytes:
    """google.protobuf.Timestamp of a time since 1970."""
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return varint_field(1, seconds) + varint_field(2, nanos)


def varint(value: int) -> bytes:
    """Base 128, lowest first; `value` at least 0."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_field(number: int, value: int) -> bytes:
    """Left out when 0."""
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def fixed64_field(number: int, value: int) -> bytes:
    """sfixed64; left out when 0."""
    return varint(number << 3 | FIXED64) + value.to_bytes(8, "little", signed=True) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Left out when empty."""
    return message_field(number, value) if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """An embedded message that cannot be null: written also when empty."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def _simple_validator(validator: Validator) -> bytes:
    """SimpleValidator{PublicKey{ed25519}, power}."""
    return message_field(1, bytes_field(1, validator.key)) + varint_field(2, validator.power)
