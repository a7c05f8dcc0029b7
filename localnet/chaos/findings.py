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
    no_namespaces: str | None = None
    """Why there can be no small disk and no partition."""


@dataclass(slots=True)
class NetworkFindings:
    """Of one of the two networks of a run; None and empty: not looked at."""

    told: Told = field(default_factory=Told)
    histories: list[History] = field(default_factory=list)
    ledger: LedgerFindings | None = None
    supply_conserved: bool | None = None


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
    networks: list[NetworkFindings] = field(default_factory=list)
    failed: str | None = None
    """Why the run ended early."""

    def report(self) -> ChaosReport:
        """As things stand, judged."""
        kinds = [record.kind for record in self.faults] + list(self.partitions)
        nets = self.networks
        ledgers = [net.ledger for net in nets if net.ledger is not None]
        seen = bool(nets) and len(ledgers) == len(nets)
        draft = ChaosReport(
            verdict="incomplete",
            problems=(),
            faults=len(kinds),
            kinds=tuple(sorted(set(kinds))),
            app_hash_mismatches=sum(len(differing(net.histories)) for net in nets) if seen else None,
            lost_txs=sum(len(ledger.lost) for ledger in ledgers) if seen else None,
            double_executions=(
                sum(len(ledger.executed_twice | ledger.wrong_accounts) for ledger in ledgers) if seen else None
            ),
            longest_stall_s=round(self.longest_stall_s, 2),
            state_sync_ok=self.state_sync_ok,
            partition_ok=self.partition_ok,
            failed=self.failed,
            skipped=self.skipped,
            kind_counts={kind: kinds.count(kind) for kind in sorted(set(kinds))},
            false_refusals=sum(len(ledger.falsely_refused) for ledger in ledgers) if seen else None,
            supply_conserved=all(net.supply_conserved for net in nets) if seen else None,
            longest_header_gap_s=round(longest_gap_s(nets[0].histories[0]), 2) if seen else None,
            heights=sum(len(net.histories[0]) for net in nets) if seen else 0,
            txs_sent=sum(len(net.told.sent) for net in nets),
            txs_acknowledged=sum(len(net.told.acknowledged) for net in nets),
            txs_in_blocks=sum(ledger.executed for ledger in ledgers) if seen else None,
            seed=self.options.seed,
            started=self.started.isoformat(timespec="seconds"),
            duration_s=round((datetime.now(UTC) - self.started).total_seconds(), 1),
            versions=versions(),
            partitions=self.partitions,
            fault_log=tuple(self.faults),
        )
        return judge(draft)
