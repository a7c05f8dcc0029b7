"""The rules by which one verified light block leads to a later one (CometBFT spec/light-client/verification).

Adjacent: the trusted header names the next validator set. Skipping: more than a third of the trusted set's power signed
the new block, so at least one honest validator of it did. In both cases more than 2/3 of the new set's power signed.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from node.light.blocks import (
    ABSENT,
    ADDRESS_BYTES,
    FOR_BLOCK,
    MAX_TOTAL_POWER,
    BlockId,
    Commit,
    CommitSignature,
    Header,
    LightBlock,
    Validator,
)
from node.light.errors import InvalidBlock, NotEnoughTrust, TrustExpired
from node.light.hashes import NS_PER_S, header_hash, in_order, validator_address, validators_hash
from node.light.votes import is_signed
from primitives.hashing import HASH_BYTES

BLOCK_PROTOCOL: Final = 11
"""Version of the block format of CometBFT 0.38 and 0.40, on which every encoding here depends."""
MAX_CLOCK_DRIFT_S: Final = 10.0


class Trusted(msgspec.Struct, frozen=True):
    """What is taken for true at `height`; 0 is genesis, which has no hash."""

    height: int
    time_ns: int
    validators: tuple[Validator, ...]
    next_validators_hash: bytes
    hash: bytes

    @classmethod
    def block(cls, block: LightBlock) -> "Trusted":
        header = block.header
        hash_ = header_hash(header)
        return cls(header.height, header.time_ns, block.validators, header.next_validators_hash, hash_)


class TrustRules(msgspec.Struct, frozen=True):
    """How long a header is trusted."""

    trusting_period_s: float
    """By this client's clock, since the header's time."""
    unbonding_blocks: int | None = None
    """Further than so many blocks no header vouches; None where it is not known."""


def check_block(block: LightBlock, chain_id: str) -> int:
    """Power that signed, when the block is of this chain, whole, and signed by more than 2/3 of its own validators.

    Raises: InvalidBlock.
    """
    header, commit = block.header, block.commit
    if header.chain_id != chain_id:
        raise InvalidBlock(header.height, f"it is of chain {header.chain_id!r}, not {chain_id!r}")
    _check_header(header)
    _check_set(header.height, block.validators)
    if validators_hash(block.validators) != header.validators_hash:
        raise InvalidBlock(header.height, "the validator set is not the one whose hash the header holds")
    if commit.height != header.height:
        raise InvalidBlock(header.height, f"the signatures are for height {commit.height}")
    if commit.block_id.hash != header_hash(header):
        raise InvalidBlock(header.height, "the signatures are for another header")
    _check_block_id(header.height, commit.block_id)
    return _power_of_own(block)


def check_next(trusted: Trusted, block: LightBlock, chain_id: str, rules: TrustRules, now_ns: int) -> int:
    """Power that signed, when `trusted` vouches for `block` above it.

    Raises: TrustExpired, InvalidBlock, NotEnoughTrust.
    """
    check_trusted(trusted, rules, now_ns)
    header = block.header
    if header.height <= trusted.height:
        raise InvalidBlock(header.height, f"it is not above the trusted height {trusted.height}")
    if rules.unbonding_blocks is not None and header.height - trusted.height > rules.unbonding_blocks:
        gap = header.height - trusted.height
        reason = f"{gap} blocks have passed since, and stake comes free after {rules.unbonding_blocks}"
        raise TrustExpired(trusted.height, reason)
    # Block 1 carries the time of genesis itself.
    if header.time_ns < trusted.time_ns or (trusted.height > 0 and header.time_ns == trusted.time_ns):
        raise InvalidBlock(header.height, f"its time is not after that of the trusted height {trusted.height}")
    if header.time_ns >= now_ns + int(MAX_CLOCK_DRIFT_S * NS_PER_S):
        raise InvalidBlock(header.height, "its time is in the future; is this machine's clock right?")
    adjacent = header.height == trusted.height + 1
    if adjacent and header.validators_hash != trusted.next_validators_hash:
        raise InvalidBlock(header.height, "its validator set is not the one that the header below it names")
    if not adjacent:
        _check_overlap(trusted, block.commit, chain_id)
    return check_block(block, chain_id)


def check_trusted(trusted: Trusted, rules: TrustRules, now_ns: int) -> None:
    """Raises: TrustExpired when `trusted` is older than the trusting period."""
    age_s = (now_ns - trusted.time_ns) / NS_PER_S
    if age_s >= rules.trusting_period_s:
        reason = f"it is {age_s:.0f} s old, and a header is trusted for {rules.trusting_period_s:g} s"
        raise TrustExpired(trusted.height, reason)


def _check_header(header: Header) -> None:
    if header.block_version != BLOCK_PROTOCOL:
        raise InvalidBlock(header.height, f"block version {header.block_version}; known here is {BLOCK_PROTOCOL}")
    if header.height > 1 or header.last_block_id.hash:
        _check_block_id(header.height, header.last_block_id)
    for name in ("last_commit_hash", "data_hash", "consensus_hash", "last_results_hash", "evidence_hash"):
        if len(getattr(header, name)) not in (0, HASH_BYTES):
            raise InvalidBlock(header.height, f"{name} has {len(getattr(header, name))} bytes")


def _check_block_id(height: int, block: BlockId) -> None:
    if len(block.hash) != HASH_BYTES or len(block.parts_hash) != HASH_BYTES or not block.parts_total:
        raise InvalidBlock(height, "a block id is not whole")


def _check_set(height: int, validators: tuple[Validator, ...]) -> None:
    if len({validator.key for validator in validators}) != len(validators):
        raise InvalidBlock(height, "a validator stands twice in the set")
    if sum(validator.power for validator in validators) > MAX_TOTAL_POWER:
        raise InvalidBlock(height, f"the set has more than {MAX_TOTAL_POWER} power")
    if in_order(validators) != tuple(validators):
        raise InvalidBlock(height, "the validator set is not in CometBFT's order")


def _power_of_own(block: LightBlock) -> int:
    """Power of the block's own set that signed it: each signature stands at its validator's place."""
    height, commit, validators = block.height, block.commit, block.validators
    if len(commit.signatures) != len(validators):
        raise InvalidBlock(height, f"{len(commit.signatures)} signatures for {len(validators)} validators")
    signed, total = 0, sum(validator.power for validator in validators)
    for index, (vote, validator) in enumerate(zip(commit.signatures, validators, strict=True)):
        if not _check_vote(height, index, vote):
            continue
        if vote.address != validator_address(validator.key):
            raise InvalidBlock(height, f"signature {index} is of another validator than stands there")
        if not is_signed(validator.key, block.header.chain_id, commit, vote):
            raise InvalidBlock(height, f"signature {index} is not by validator {vote.address.hex()}")
        if vote.flag == FOR_BLOCK:
            signed += validator.power
    if signed * 3 <= total * 2:
        raise InvalidBlock(height, f"signed by {signed} of {total} power; it takes more than 2/3")
    return signed


def _check_overlap(trusted: Trusted, commit: Commit, chain_id: str) -> None:
    """More than a third of the trusted power signed `commit`.

    Signatures of keys that are not trusted do not count here; `check_block` looks at them.
    """
    known = {validator_address(validator.key): validator for validator in trusted.validators}
    signed, seen = 0, set[bytes]()
    for index, vote in _votes_for_block(commit.signatures):
        validator = known.get(vote.address)
        if validator is None:
            continue
        if vote.address in seen:
            raise InvalidBlock(commit.height, f"validator {vote.address.hex()} signed twice")
        seen.add(vote.address)
        if not is_signed(validator.key, chain_id, commit, vote):
            raise InvalidBlock(commit.height, f"signature {index} is not by validator {vote.address.hex()}")
        signed += validator.power
    total = sum(validator.power for validator in trusted.validators)
    if signed * 3 <= total:
        raise NotEnoughTrust(commit.height, signed, total)


def _votes_for_block(votes: Iterable[CommitSignature]) -> Iterable[tuple[int, CommitSignature]]:
    return ((index, vote) for index, vote in enumerate(votes) if vote.flag == FOR_BLOCK)


def _check_vote(height: int, index: int, vote: CommitSignature) -> bool:
    """Whether there is a vote at all; its form is checked either way."""
    if vote.flag == ABSENT:
        if vote.address or vote.time_ns or vote.signature:
            raise InvalidBlock(height, f"signature {index} is marked absent and is there")
        return False
    if len(vote.address) != ADDRESS_BYTES:
        raise InvalidBlock(height, f"signature {index} has an address of {len(vote.address)} bytes")
    return True
