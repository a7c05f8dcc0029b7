"""What a light client looks at: header, commit and validators of one height. Times are nanoseconds since 1970 UTC."""

from typing import Annotated, Final

import msgspec

from primitives.hashing import HASH_BYTES

MAX_VALIDATORS: Final = 10_000
"""As many as CometBFT allows."""
ADDRESS_BYTES: Final = 20
ED25519_KEY_BYTES: Final = 32
ED25519_SIGNATURE_BYTES: Final = 64
MAX_APP_HASH_BYTES: Final = 64
MAX_TOTAL_POWER: Final = (2**63 - 1) // 8
"""CometBFT's own limit."""

ABSENT: Final = 1
FOR_BLOCK: Final = 2
FOR_NIL: Final = 3

Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
MaybeHash = Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]
"""32 bytes or, where there is nothing to hash, none."""
Address = Annotated[bytes, msgspec.Meta(min_length=ADDRESS_BYTES, max_length=ADDRESS_BYTES)]


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class BlockId(_Data, frozen=True):
    """Hash of a header, and of the pieces in which its block went over the network. All empty before block 1."""

    hash: MaybeHash
    parts_total: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    parts_hash: MaybeHash


class Header(_Data, frozen=True):
    """Fields as in CometBFT's Header, in their order."""

    block_version: Int64
    app_version: Int64
    chain_id: Annotated[str, msgspec.Meta(min_length=1, max_length=50)]
    height: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    time_ns: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    last_block_id: BlockId
    last_commit_hash: MaybeHash
    data_hash: MaybeHash
    validators_hash: Hash
    next_validators_hash: Hash
    consensus_hash: MaybeHash
    app_hash: Annotated[bytes, msgspec.Meta(max_length=MAX_APP_HASH_BYTES)]
    """Of the state before this block: after the block below it."""
    last_results_hash: MaybeHash
    evidence_hash: MaybeHash
    proposer_address: Address


class CommitSignature(_Data, frozen=True):
    """What one validator said of the block: `flag` ABSENT (all else empty), FOR_BLOCK or FOR_NIL."""

    flag: Annotated[int, msgspec.Meta(ge=ABSENT, le=FOR_NIL)]
    address: Annotated[bytes, msgspec.Meta(max_length=ADDRESS_BYTES)]
    time_ns: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    signature: Annotated[bytes, msgspec.Meta(max_length=ED25519_SIGNATURE_BYTES)]


class Commit(_Data, frozen=True):
    """The precommits for a block, one entry for each validator of its height in the set's order."""

    height: Int64
    round: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    block_id: BlockId
    signatures: Annotated[tuple[CommitSignature, ...], msgspec.Meta(max_length=MAX_VALIDATORS)]


class Validator(_Data, frozen=True):
    """An ed25519 key and its voting power."""

    key: Annotated[bytes, msgspec.Meta(min_length=ED25519_KEY_BYTES, max_length=ED25519_KEY_BYTES)]
    power: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOTAL_POWER)]


Validators = Annotated[tuple[Validator, ...], msgspec.Meta(min_length=1, max_length=MAX_VALIDATORS)]
"""In CometBFT's order, which the hash depends on: greatest power first, then by address."""


class LightBlock(_Data, frozen=True):
    """Everything of one height that verification takes."""

    header: Header
    commit: Commit
    validators: Validators

    @property
    def height(self) -> int:
        return self.header.height
