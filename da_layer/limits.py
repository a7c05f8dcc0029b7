"""Bounds on what a row server keeps in memory, and on how long it waits for a peer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from primitives.blobs import MAX_BLOB_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class DaLimits:
    """Numbers of one row server; bytes and seconds."""

    max_body_bytes: int = 3 * MAX_BLOB_BYTES + 1024 * 1024
    """Of one PUT: a member with the whole stake holds three times the blob."""
    in_flight_bytes: int = 512 * 1024 * 1024
    """Of all bodies and answers under way; answers take at most half, so that slow readers keep no uploads out. A PUT
    takes up to three times its body while it is checked."""
    max_answer_bytes: int = 64 * 1024 * 1024
    """Rows of one answer (at least one row is served)."""
    max_puts: int = 64
    """Uploads under way at the same time."""
    patience_s: float = 10.0
    """Plus the size over `min_bytes_per_s`: how long what has been moved of one body or answer may have taken."""
    min_bytes_per_s: int = 1024 * 1024
    retry_after_s: int = 1

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be above 0")
        if self.in_flight_bytes < self.max_body_bytes:
            raise ValueError(f"in_flight_bytes is {self.in_flight_bytes}; one body may have {self.max_body_bytes}")

    def time_for(self, size: int) -> float:
        """Seconds that a transfer of `size` bytes may take."""
        return self.patience_s + size / self.min_bytes_per_s


@dataclass(slots=True)
class DaCounters:
    """What has happened in one process of a row server since its start. All only go up."""

    promises_stored: int = 0
    promises_pruned: int = 0
    rows_served: int = 0
    bytes_served: int = 0
    rows_damaged: int = 0
    full_refused: int = 0
    busy_refused: int = 0
    requests_refused: int = 0
    """All that got an error, those above included."""


class Lease:
    """A share of a ByteBudget that grows as bytes arrive."""

    def __init__(self, budget: "ByteBudget") -> None:
        self._budget = budget
        self.taken = 0

    def take(self, size: int, *, leaving: int = 0) -> bool:
        """Whether `size` more bytes fit just now and leave so many free; they are taken if so."""
        if self._budget.free < size + leaving:
            return False
        self._budget.free -= size
        self.taken += size
        return True


class ByteBudget:
    """How many bytes all requests together may hold. A request may take what has arrived, not what it announces, so
    that big announcements alone keep nobody else out."""

    def __init__(self, size: int) -> None:
        self.free = size

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.free += lease.taken
