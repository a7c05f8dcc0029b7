"""What came of a load, computed from the contents of blocks; its JSON is what `localnet load --json` prints."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

import msgspec


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds. Rates, finality, blocks and processor time are of the measured window, counts of the whole
    run."""

    kind: str
    nodes: int
    connections: int
    messages_per_tx: int
    tx_bytes: float
    """Mean size."""
    rate: float | None
    """Transactions a second that were asked for; null: as many as `in_flight` allows."""
    in_flight: int
    window_s: float
    """From the block that begins the window to the one that ends it."""
    offered_tps: float
    """What was really sent; below `rate` when `in_flight` was reached or the machine is too slow."""
    committed_tps: float
    messages_per_s: float
    finality_p50_s: float
    """From submission to commit as a client sees it, of the transactions submitted in the window."""
    finality_p95_s: float
    finality_p99_s: float
    block_interval_median_s: float
    block_interval_max_s: float
    blocks: int
    txs_per_block_max: int
    cpu_s_app: float
    cpu_s_engine: float
    cpu_s_per_1000_tx_app: float
    """0 when there were none."""
    cpu_s_per_1000_tx_engine: float
    submitted: int
    committed: int
    """Found in a block, whatever the result; each counts once."""
    failed: int
    """In a block with a result code other than 0."""
    refused: int
    """Not taken by CometBFT."""
    lost: int
    """Neither refused nor in a block, some time after everything else."""
    ran_out: bool
    """Everything that had been prepared was sent before the time was over; the window is shorter then."""
    reasons: dict[str, int]
    """Why transactions were refused or failed, with how many."""

    @property
    def clean(self) -> bool:
        """Everything that was submitted has been executed with success."""
        return self.committed == self.submitted and not (self.failed or self.lost or self.refused)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (above 0, up to 1) of the sorted values do not exceed; 0 for none."""
    if not ordered:
        return 0.0
    rank = -int(-share * len(ordered) // 1)
    return ordered[max(0, min(len(ordered), rank) - 1)]


def intervals(moments: Sequence[float]) -> list[float]:
    """Between neighbours."""
    return [later - earlier for earlier, later in pairwise(moments)]


def median(values: Sequence[float]) -> float:
    """0 for none."""
    return statistics.median(values) if values else 0.0
