"""build/chaos.json: what was done to the network and what came of it, and what must hold for the run to be good."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal

import msgspec

from node.engine import engine_version, find_engine
from node.files import write_atomically

STALL_LIMIT_S: Final = 30.0
"""Longest time without a block, on any node that is not disturbed itself, while three of four live."""
INTERRUPTED: Final = "interrupted"
"""`failed` of a run that was told to stop; what it had found by then is judged all the same."""
Verdict = Literal["held", "failed", "incomplete", "interrupted"]


class FaultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that was injected and got over."""

    kind: str
    node: int
    at_s: float
    """Since the start of the run."""
    height: int
    """Of the chain when it began."""
    lasted_s: float
    """Until the node was healthy again and had the newest block."""
    note: str
    """What the fault did, in words."""


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of chaos.json. What was not looked at is null; times are seconds."""

    verdict: Verdict
    problems: tuple[str, ...]
    """Everything that is not as it should be, in words."""
    faults: int
    kinds: tuple[str, ...]
    """Of the faults that were injected, sorted."""
    app_hash_mismatches: int | None
    """Heights at which two nodes differ in app hash or block hash."""
    lost_txs: int | None
    """Acknowledged to a sender as committed, and not in the chain of every node."""
    double_executions: int | None
    """Payments executed more than once, and accounts that do not hold what the executed transactions leave them."""
    longest_stall_s: float
    """Longest time between two blocks as polled (four times a second) from any node that was not disturbed."""
    state_sync_ok: bool | None
    partition_ok: bool | None
    failed: str | None
    """Why the run ended early."""
    skipped: dict[str, str]
    """Kinds that were asked for and could not be injected, and why."""
    kind_counts: dict[str, int]
    false_refusals: int | None
    """Reported to a sender as never executed, and executed all the same."""
    supply_conserved: bool | None
    longest_header_gap_s: float | None
    """Longest time between two blocks by the times in their headers."""
    heights: int
    """Blocks compared."""
    txs_sent: int
    txs_acknowledged: int
    txs_in_blocks: int | None
    """Executed with code 0, those of set-up included."""
    seed: int
    started: str
    """UTC, ISO 8601."""
    duration_s: float
    versions: dict[str, str]
    partitions: dict[str, str]
    """What each partition did, in words."""
    fault_log: tuple[FaultRecord, ...]


def find_problems(report: ChaosReport) -> tuple[str, ...]:
    """Everything that makes the run a bad one; empty when all that was looked at is as it should be."""
    checks = {
        f"the run ended early: {report.failed}": report.failed in (None, INTERRUPTED),
        f"app hashes or blocks differ at {report.app_hash_mismatches} heights": not report.app_hash_mismatches,
        f"{report.lost_txs} transactions were acknowledged as committed and are lost": not report.lost_txs,
        f"{report.double_executions} double executions or wrong balances": not report.double_executions,
        f"{report.false_refusals} payments were executed though their sender was told they never would be": (
            not report.false_refusals
        ),
        f"no block for {report.longest_stall_s:.1f} s; at most {STALL_LIMIT_S:.0f} s are allowed": (
            report.longest_stall_s <= STALL_LIMIT_S
        ),
        "a node did not rejoin by state sync": report.state_sync_ok is not False,
        "the network did not survive a partition": report.partition_ok is not False,
        "money appeared or vanished": report.supply_conserved is not False,
    }
    return tuple(problem for problem, holds in checks.items() if not holds)


def judge(report: ChaosReport) -> ChaosReport:
    """The report with its problems and verdict; a good run is one that was finished and left out nothing asked for."""
    problems = find_problems(report)
    unseen = report.app_hash_mismatches is None or report.supply_conserved is None
    verdict: Verdict = "held"
    if problems:
        verdict = "failed"
    elif report.failed == INTERRUPTED:
        verdict = "interrupted"
    elif report.skipped or unseen or not report.faults:
        verdict = "incomplete"
    return msgspec.structs.replace(report, problems=problems, verdict=verdict)


def versions() -> dict[str, str]:
    """Of everything that takes part."""
    return {
        "outerstep": version("outerstep"),
        "cometbft": engine_version(find_engine()) or "unknown",
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def write_report(report: ChaosReport, path: Path) -> None:
    """Write chaos.json, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
