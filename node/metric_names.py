"""Names, kinds and meanings of the numbers under /metrics that other parts count; docs/running.md lists them all.

Counters go up from the start of the services; Prometheus' text format ends their names with `_total`.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Name:
    """One metric. The key in the tables below is what its source calls it."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str


def _counter(name: str, meaning: str) -> Name:
    return Name(f"outerstep_{name}", "counter", meaning)


def _gauge(name: str, meaning: str) -> Name:
    return Name(f"outerstep_{name}", "gauge", meaning)


DA: Final = {
    "blobs_held": _gauge("da_blobs_held", "Blobs of which rows are here."),
    "rows_held": _gauge("da_rows_held", "Rows that are here and not known to be damaged."),
    "bytes_held": _gauge("da_held_bytes", "Bytes of rows on disk."),
    "promises_stored": _counter("da_promises_stored", "Promises whose rows were stored."),
    "promises_pruned": _counter("da_promises_pruned", "Promises whose rows were deleted after their expiry."),
    "rows_served": _counter("da_rows_served", "Rows given to readers."),
    "bytes_served": _counter("da_served_bytes", "Bytes of answers with rows."),
    "rows_damaged": _counter("da_rows_damaged", "Rows that no longer proved when they were read, and were dropped."),
    "full_refused": _counter("da_full_refused", "Uploads refused because the disk budget is used up."),
    "busy_refused": _counter("da_busy_refused", "Requests told to come back, because too much is under way."),
    "requests_refused": _counter("da_requests_refused", "All requests that got an error, those above included."),
}
STORAGE: Final = {
    "height": _gauge("storage_height", "Height of the chain that the deals here were last compared with."),
    "deals_living": _gauge("storage_deals_living", "Living deals that name this node."),
    "files_held": _gauge("storage_files_held", "Files of which segments are here."),
    "bytes_held": _gauge("storage_held_bytes", "Bytes of segments on disk."),
    "segments_rotten": _counter("storage_segments_rotten", "Segments found damaged on disk and dropped."),
    "cache_bytes": _gauge("storage_cache_bytes", "Memory of recently served segments."),
    "uploads_running": _gauge("storage_uploads_running", "Segments being received."),
    "reads_running": _gauge("storage_reads_running", "Segments being sent."),
    "segments_received": _counter("storage_segments_received", "Segments stored."),
    "bytes_received": _counter("storage_received_bytes", "Bytes of segments stored."),
    "segments_known_already": _counter("storage_segments_known_already", "Segments sent again."),
    "segments_served": _counter("storage_segments_served", "Segments given to readers."),
    "bytes_served": _counter("storage_served_bytes", "Bytes of segments given to readers."),
    "cache_hits": _counter("storage_cache_hits", "Segments served from memory."),
    "cache_misses": _counter("storage_cache_misses", "Segments of the hot tier served from disk."),
    "receipts_given": _counter("storage_receipts_given", "Receipts signed, each after reading the whole file."),
    "wrong_segments_refused": _counter("storage_wrong_segments_refused", "Segments that did not prove."),
    "no_space_refused": _counter("storage_no_space_refused", "Segments refused for want of room or by the disk."),
    "busy_refused": _counter("storage_busy_refused", "Transfers told to come back, because too many are running."),
    "deals_dropped": _counter("storage_deals_dropped", "Deals let go after their end."),
    "files_dropped": _counter("storage_files_dropped", "Files deleted after their last deal."),
    "disk_errors": _counter("storage_disk_errors", "Reads or writes that the operating system refused."),
}
ENGINE: Final = {
    "up": _gauge("engine_up", "1 while CometBFT answers, else 0; the numbers from it are missing then."),
    "height": _gauge("engine_height", "Last block that CometBFT holds."),
    "catching_up": _gauge("engine_catching_up", "1 while CometBFT fetches old blocks."),
    "app_height": _gauge("app_height", "Last height that the application has committed."),
    "app_lag": _gauge("app_lag_blocks", "Blocks that the application is behind CometBFT."),
    "services_lag": _gauge("services_lag_blocks", "Blocks that the services are behind the application."),
    "mempool_transactions": _gauge("mempool_transactions", "Transactions that wait in the mempool."),
    "mempool_bytes": _gauge("mempool_bytes", "Bytes of the transactions that wait in the mempool."),
    "peers": _gauge("peers", "Nodes that this one is connected with."),
}
