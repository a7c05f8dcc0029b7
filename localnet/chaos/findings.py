"""What a chaos run was asked to do, and what it has found so far, as a report."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from localnet.chaos.history import History, differing, longest_gap_s
from localnet.chaos.ledger import LedgerFindings, Told
from localnet.chaos.plan import ALL_KINDS
from localnet.chaos.report import ChaosReport, FaultRecord, judge, versions

REPORT_NAME: Final = "chaos.json"
DEFAULT_MINUTES: Final = 8.0
NODES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    home: Path
    """Node homes, journal of the load; emptied at the start."""
    report: Path
    minutes: float = DEFAULT_MINUTES
    """Of the whole run; a run that has not injected every kind by then takes a little longer."""
    seed: int = 1
    kinds: tuple[str, ...] = ALL_KINDS
    keep: bool = False
    """Leave the node homes in any case, not only after a failure."""
    no_disk: str | None = None
    """Why there can be no small disk."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """Filled as the run goes on, so that a report can be made at any time."""

    options: ChaosOptions
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    faults: list[FaultRecord] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    longest_stall_s: float = 0.0
    state_sync_ok: bool | None = None
    partitions: dict[str, str] = field(default_factory=dict)
    partition_ok: bool | None = None
    told: Told = field(default_factory=Told)
    histories: list[History] = field(default_factory=list)
    ledger: LedgerFindings | None = None
    supply_conserved: bool | None = None
    failed: str | None = None
    """Why the run ended early."""

    def report(self) -> ChaosReport:
        """As things stand, judged."""
        kinds = [record.kind for record in self.faults] + list(self.partitions)
        ledger = self.ledger
        draft = ChaosReport(
            verdict="incomplete",
            problems=(),
            faults=len(kinds),
            kinds=tuple(sorted(set(kinds))),
            app_hash_mismatches=len(differing(self.histories)) if self.histories else None,
            lost_txs=len(ledger.lost) if ledger else None,
            double_executions=len(ledger.executed_twice | ledger.wrong_accounts) if ledger else None,
            longest_stall_s=round(self.longest_stall_s, 2),
            state_sync_ok=self.state_sync_ok,
            partition_ok=self.partition_ok,
            failed=self.failed,
            skipped=self.skipped,
            kind_counts={kind: kinds.count(kind) for kind in sorted(set(kinds))},
            false_refusals=len(ledger.falsely_refused) if ledger else None,
            supply_conserved=self.supply_conserved,
            longest_header_gap_s=round(longest_gap_s(self.histories[0]), 2) if self.histories else None,
            heights=len(self.histories[0]) if self.histories else 0,
            txs_sent=len(self.told.sent),
            txs_acknowledged=len(self.told.acknowledged),
            txs_in_blocks=ledger.executed if ledger else None,
            seed=self.options.seed,
            started=self.started.isoformat(timespec="seconds"),
            duration_s=round((datetime.now(UTC) - self.started).total_seconds(), 1),
            versions=versions(),
            partitions=self.partitions,
            fault_log=tuple(self.faults),
        )
        return judge(draft)
