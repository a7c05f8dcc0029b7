"""What the demo found out: build/demo.json, and what must hold for it to have succeeded."""

from pathlib import Path
from typing import Final

import msgspec

from node.files import write_atomically

MIN_COMPRESSION: Final = 20
"""Payloads should be at least this many times smaller than the same values in fp32."""
MAX_WALL_S: Final = 600.0
CHECKPOINTS_KEPT: Final = 3


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker in one round."""

    worker: str
    verdict: str
    payload_bytes: int
    paid: int
    """10^-6 token."""
    loss: float
    """Mean training loss of its round as it reported, nats per token."""


class RoundRow(msgspec.Struct, frozen=True):
    """One settled round."""

    round_index: int
    height: int
    state_root: str
    workers: tuple[WorkerRow, ...]
    payload_bytes: int
    fp32_bytes: int
    """The same updates uncompressed: 4 bytes for each parameter and included worker."""
    paid: int


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of demo.json. Losses are nats per token on the same held-out text."""

    nodes: int
    validators: int
    """Of the last block, as CometBFT knows them."""
    workers: int
    height: int
    rounds_wanted: int
    rounds_settled: int
    val_loss_first: float
    """Of the genesis state."""
    val_loss_last: float
    """Of the newest checkpoint, downloaded from storage."""
    bigram_loss: float
    payload_bytes: int
    fp32_bytes: int
    compression: float
    text_bytes: int
    parameters: int
    app_hashes_equal: bool
    app_hashes_compared: int
    """Heights compared on all nodes."""
    supply_conserved: bool
    expired_gone: bool
    checkpoint_root_verified: bool
    checkpoints_stored: int
    """Different checkpoints that were ever in the hot tier."""
    checkpoints_kept: int
    """Of these, the ones that are still there."""
    workers_with_logs: int
    """Workers whose log was in the temporary tier."""
    wall_s: float
    rounds: tuple[RoundRow, ...]
    files: dict[str, str]
    problems: tuple[str, ...] = ()


def find_problems(report: DemoReport) -> tuple[str, ...]:
    """Everything that is not as it should be, in words; empty when the demo succeeded."""
    checks = {
        f"{report.rounds_settled} rounds were settled; {report.rounds_wanted} were wanted": (
            report.rounds_settled >= report.rounds_wanted
        ),
        f"the held-out loss {report.val_loss_last:.4f} is not below the bigram loss {report.bigram_loss:.4f}": (
            report.val_loss_last < report.bigram_loss
        ),
        f"the held-out loss did not fall: {report.val_loss_first:.4f} to {report.val_loss_last:.4f}": (
            report.val_loss_last < report.val_loss_first
        ),
        f"payloads are only {report.compression:.1f}x smaller than fp32; {MIN_COMPRESSION}x is wanted": (
            report.payload_bytes > 0 and report.payload_bytes * MIN_COMPRESSION <= report.fp32_bytes
        ),
        "the app hashes of the nodes differ at some height": report.app_hashes_equal,
        "the supply is not conserved": report.supply_conserved,
        "an expired deal is still listed or served": report.expired_gone,
        "the checkpoint's root does not match the chain": report.checkpoint_root_verified,
        f"{report.validators} validators sign; {report.nodes} are wanted": report.validators == report.nodes,
        f"{report.checkpoints_stored} checkpoints were stored for {report.rounds_settled} settled rounds": (
            report.checkpoints_stored == report.rounds_settled
        ),
        f"{report.checkpoints_kept} checkpoints are kept; {CHECKPOINTS_KEPT} are wanted": (
            report.checkpoints_kept == min(CHECKPOINTS_KEPT, report.rounds_settled)
        ),
        f"{report.workers_with_logs} of {report.workers} workers stored their log": (
            report.workers_with_logs == report.workers
        ),
        f"it took {report.wall_s:.0f} s; at most {MAX_WALL_S:.0f} s are wanted": report.wall_s <= MAX_WALL_S,
    }
    checks |= {
        f"round {row.round_index}: nobody was paid": any(worker.paid > 0 for worker in row.workers)
        for row in report.rounds
    }
    return tuple(problem for problem, holds in checks.items() if not holds)


def write_report(report: DemoReport, path: Path) -> None:
    """Write demo.json, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
