"""Blobs of the data-availability layer, as the chain and every node name and sign them.

A blob of `size` bytes becomes `k` data rows and `n - k` parity rows of `row_size` bytes. The commitment binds every
parameter and the Merkle root over the whole rows. Rows go to the members of a service set by stake: each member gets
at least ceil(3 k stake / total) rows, so that any members with a third of the stake hold k rows together
(the rule of Celestia's Fibre).
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from primitives.encoding import encode
from primitives.hashing import tagged_hash

MAX_BLOB_BYTES: Final = 128 * 1024 * 1024
BLOB_VERSION: Final = 1
CODECS: Final = ("rs8", "isal")
"""`rs8` is reedsolo's code by byte column; `isal` is ISA-L's Cauchy code (pyeclib)."""
MAX_ROWS: Final = 255
"""Both codecs work over GF(2^8)."""
DEFAULT_DATA_ROWS: Final = 32


class BlobHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Everything that fixes the rows of a blob. Its hash is the commitment."""

    version: int
    codec: str
    k: int
    n: int
    size: int
    """Bytes of the blob itself, before padding; at least 1."""
    row_size: int
    """Bytes of each row."""
    rows_root: bytes
    """Merkle root (primitives.merkle) over the n rows."""

    @property
    def commitment(self) -> bytes:
        return tagged_hash("outerstep/blob/1", encode(self))


class ServiceMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One bonded validator as others meet it: who it is, its weight, and where its services listen."""

    operator: bytes
    """Account address, 20 bytes."""
    stake: int
    service_key: bytes
    """32 bytes x-only; empty while no service is registered (it then weighs but cannot sign)."""
    url: str
    """Base address of the services, such as http://10.0.0.1:26670; empty while none is registered."""


class ServiceSet(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The bonded validators at some time, sorted by operator. A new version is written whenever it changes."""

    version: int
    members: tuple[ServiceMember, ...]

    @property
    def total_stake(self) -> int:
        return sum(member.stake for member in self.members)


class BlobPromise(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a publisher asks nodes to hold, and promises to pay for: signed by the publisher's account."""

    chain_id: str
    header: BlobHeader
    namespace: str
    """Who and what for, such as ``job/3/round/7``; 1 to 64 characters of a-z 0-9 / - _."""
    expiry_height: int
    """Rows may be pruned once the chain is above this height."""
    set_version: int
    """The ServiceSet whose stakes place the rows."""
    publisher: bytes
    """Account address, 20 bytes."""

    @property
    def digest(self) -> bytes:
        """What the publisher signs, 32 bytes."""
        return tagged_hash("outerstep/blob-promise/1", encode(self))

    @property
    def attestation_digest(self) -> bytes:
        """What a member signs once it holds all its rows, 32 bytes."""
        return tagged_hash("outerstep/blob-attestation/1", encode(self))


class Attestation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A member's word that it holds every row assigned to it."""

    operator: bytes
    signature: bytes
    """By the member's service key over `BlobPromise.attestation_digest`."""


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A promise with attestations of at least 2/3 of the stake of its service set, sorted by operator."""

    promise: BlobPromise
    attestations: tuple[Attestation, ...]


def row_counts(k: int, members: Sequence[ServiceMember]) -> list[int]:
    """How many rows each member gets: ceil(3 k stake / total). Their sum is the n of every blob for this set."""
    total = sum(member.stake for member in members)
    return [-(-3 * k * member.stake // total) for member in members]


def assign_rows(commitment: bytes, k: int, members: Sequence[ServiceMember]) -> list[tuple[int, ...]]:
    """Which row indices each member holds: a permutation drawn from the commitment, dealt out by `row_counts`.

    The permutation is Fisher-Yates with SHA-256(commitment || counter) as the source; each tuple is sorted.
    """
    counts = row_counts(k, members)
    order = list(range(sum(counts)))
    for i in range(len(order) - 1, 0, -1):
        draw = hashlib.sha256(commitment + i.to_bytes(4, "big")).digest()
        j = int.from_bytes(draw[:16], "big") % (i + 1)
        order[i], order[j] = order[j], order[i]
    assigned: list[tuple[int, ...]] = []
    start = 0
    for count in counts:
        assigned.append(tuple(sorted(order[start : start + count])))
        start += count
    return assigned


def data_rows_for(members: Sequence[ServiceMember], wanted: int = DEFAULT_DATA_ROWS) -> int:
    """The largest k <= `wanted` for which n = sum(row_counts) fits MAX_ROWS.

    Raises: ValueError when even k = 1 does not fit (too many members for the GF(2^8) codecs).
    """
    for k in range(wanted, 0, -1):
        if sum(row_counts(k, members)) <= MAX_ROWS:
            return k
    raise ValueError(f"{len(members)} members need more than {MAX_ROWS} rows")
