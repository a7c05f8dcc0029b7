"""The table of a load."""

from collections.abc import Iterator

from localnet.load.results import LoadResult
from node.cli.output import print_fields


def show(result: LoadResult) -> None:
    """On standard output."""
    nodes = "1 node" if result.nodes == 1 else f"{result.nodes} nodes"
    title = f"{result.kind} on {nodes}, {result.window_s:.1f} s measured"
    print_fields(title, _fields(result))


def _fields(r: LoadResult) -> Iterator[tuple[str, str]]:
    asked = "as many as go" if r.rate is None else f"{r.rate:g} asked for"
    yield "offered", f"{r.offered_tps:.1f} tx/s ({asked}; {r.in_flight} on the way at most)"
    yield "committed", f"{r.committed_tps:.1f} tx/s"
    yield "messages", f"{r.messages_per_s:.1f} /s ({r.messages_per_tx} in each of {r.tx_bytes:.0f} bytes)"
    yield "finality", f"p50 {r.finality_p50_s:.3f} s, p95 {r.finality_p95_s:.3f} s, p99 {r.finality_p99_s:.3f} s"
    yield "block interval", f"median {r.block_interval_median_s:.3f} s, longest {r.block_interval_max_s:.3f} s"
    yield "blocks", f"{r.blocks}, the fullest with {r.txs_per_block_max} of these transactions"
    yield "CPU, application", f"{r.cpu_s_per_1000_tx_app:.3f} s for 1,000 tx, all nodes together"
    yield "CPU, engine", f"{r.cpu_s_per_1000_tx_engine:.3f} s for 1,000 tx, all nodes together"
    counts = {
        "submitted": r.submitted,
        "committed": r.committed,
        "failed": r.failed,
        "refused": r.refused,
        "lost": r.lost,
    }
    yield "of all", ", ".join(f"{number:,} {what}" for what, number in counts.items())
