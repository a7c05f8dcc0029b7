"""How much one storage service takes on at a time, and what it counts."""

from dataclasses import dataclass, field

from storage.errors import Busy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """What one service takes on at a time."""

    cache_bytes: int = 64 * 1024 * 1024
    """Memory for recently served segments of the hot tier."""
    max_uploads: int = 32
    """Segments being received at once; each takes about 1 MiB of memory."""
    max_reads: int = 64
    """Segments being sent at once."""
    max_audits: int = 2
    """Files being read in full for a receipt at once."""
    body_timeout_s: float = 30.0
    """How long the body of one segment may take to arrive."""

    def __post_init__(self) -> None:
        if self.cache_bytes < 0 or self.body_timeout_s <= 0:
            raise ValueError("cache_bytes should be 0 or more, body_timeout_s above 0")
        if min(self.max_uploads, self.max_reads, self.max_audits) < 1:
            raise ValueError("max_uploads, max_reads and max_audits should be at least 1")


@dataclass(slots=True)
class StorageCounters:
    """What has happened since the start. All only go up."""

    segments_received: int = 0
    bytes_received: int = 0
    segments_known_already: int = 0
    segments_served: int = 0
    bytes_served: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    receipts_given: int = 0
    wrong_segments_refused: int = 0
    no_space_refused: int = 0
    busy_refused: int = 0
    deals_dropped: int = 0
    files_dropped: int = 0
    disk_errors: int = 0


@dataclass(slots=True)
class Gate:
    """At most `limit` inside at once; the next is told to come back. Use as a context manager."""

    limit: int
    counters: StorageCounters
    inside: int = field(default=0, init=False)

    def __enter__(self) -> None:
        if self.inside >= self.limit:
            self.counters.busy_refused += 1
            raise Busy(f"{self.limit} transfers are running already; try again soon")
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1
