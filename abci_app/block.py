"""What the rules may know about the block, and what applying one gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockContext:
    """Of the block being executed; the only source of time and randomness."""

    chain_id: str
    height: int
    time_s: int
    """Block time, whole seconds since 1970; for coarse display only."""
    last_block_hash: bytes = b""
    """Hash of this block as CometBFT names it; seed for draws that nobody should choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A validator's misbehaviour as CometBFT reports it."""

    consensus_address: bytes
    """First 20 bytes of SHA-256 of the Ed25519 consensus key."""
    height: int
    power: int


@dataclass(frozen=True, slots=True)
class EndOfBlock:
    """What a block changes outside the state."""

    validator_updates: tuple[tuple[bytes, int], ...] = ()
    """(Ed25519 consensus key, new power), sorted by key; power 0 removes."""
    events: tuple["Event", ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth an index or a subscription; not part of consensus. Values are text."""

    kind: str
    attributes: Mapping[str, str] = field(default_factory=dict)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Result of one transaction: exactly one for every byte string in a block."""

    code: int
    log: str = ""
    data: bytes = b""
    """Canonical encoding of the list of ids that the messages created (job or deal id, 0 for messages without)."""
    work_wanted: int = 0
    work_used: int = 0
    events: tuple[Event, ...] = ()
