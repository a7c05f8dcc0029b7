"""Blobs of the data-availability layer, as the chain and every node name and sign them.

A blob of `size` bytes becomes `k` data rows and `n - k` parity rows of `row_size` bytes. The commitment binds every
parameter and the Merkle root over the whole rows. Rows go to the members of a service set by stake: each member gets
at least ceil(3 k stake / total) rows, so that any members with a third of the stake hold k rows together
(the rule of Celestia's Fibre).
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from primitives.encoding import encode
from primitives.hashing import HASH_BYTES, tagged_hash

MAX_BLOB_BYTES: Final = 128 * 1024 * 1024
BLOB_VERSION: Final = 1
CODECS: Final = ("rs8", "isal")
"""`rs8` is reedsolo's code by byte column; `isal` is ISA-L's Cauchy code (pyeclib)."""
MAX_ROWS: Final = 255
"""Both codecs work over GF(2^8)."""
DEFAULT_DATA_ROWS: Final = 32
ROW_ALIGNMENT_BYTES: Final = 64
_NAMESPACE = re.compile(r"[a-z0-9/\-_.]{1,64}")


class BlobHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
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


class ServiceMember(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One bonded validator as others meet it: who it is, its weight, and where its services listen."""

    operator: bytes
    """Account address, 20 bytes."""
    stake: int
    service_key: bytes
    """32 bytes x-only; empty while no service is registered (it then weighs but cannot sign)."""
    url: str
    """Base address of the services, such as http://10.0.0.1:26670; empty while none is registered."""


class ServiceSet(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The bonded validators at some time, sorted by operator. A new version is written whenever it changes."""

    version: int
    members: tuple[ServiceMember, ...]

    @property
    def total_stake(self) -> int:
        return sum(member.stake for member in self.members)


class BlobPromise(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
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


class Attestation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A member's word that it holds every row assigned to it."""

    operator: bytes
    signature: bytes
    """By the member's service key over `BlobPromise.attestation_digest`."""


class Certificate(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A promise with attestations of at least 2/3 of the stake of its service set, sorted by operator."""

    promise: BlobPromise
    attestations: tuple[Attestation, ...]


def row_size_for(size: int, k: int) -> int:
    """Bytes of each row of a blob of `size` bytes in `k` data rows: ceil(size / k), rounded up to a multiple of 64."""
    return -(-size // (k * ROW_ALIGNMENT_BYTES)) * ROW_ALIGNMENT_BYTES


def check_header(header: BlobHeader) -> None:
    """Whether `header` could belong to a blob at all; says nothing about its rows.

    Raises: ValueError that names the field which is out of its form.
    """
    if header.version != BLOB_VERSION:
        raise ValueError(f"blob version is {header.version}; this network has {BLOB_VERSION}")
    if header.codec not in CODECS:
        raise ValueError(f"codec is {header.codec!r}; it should be one of {', '.join(CODECS)}")
    if not 1 <= header.k <= header.n <= MAX_ROWS:
        raise ValueError(f"k is {header.k} and n is {header.n}; 1 <= k <= n <= {MAX_ROWS} should hold")
    if not 1 <= header.size <= MAX_BLOB_BYTES:
        raise ValueError(f"blob size is {header.size}; it should be 1 to {MAX_BLOB_BYTES} bytes")
    if header.row_size != row_size_for(header.size, header.k):
        raise ValueError(f"row size is {header.row_size}; it should be {row_size_for(header.size, header.k)}")
    if len(header.rows_root) != HASH_BYTES:
        raise ValueError(f"rows root has {len(header.rows_root)} bytes; it should have {HASH_BYTES}")


def check_namespace(namespace: str) -> None:
    """Raises: ValueError unless `namespace` is 1 to 64 characters of a-z 0-9 / - _ and dot."""
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(f"namespace {namespace[:80]!r} should be 1 to 64 characters of a-z 0-9 / - _ .")


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
