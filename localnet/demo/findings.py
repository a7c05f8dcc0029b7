"""What the demo was asked to do, what it found once the job was over, and the report made from both."""

from dataclasses import dataclass
from pathlib import Path

from abci_app.records import Deal, Job, Settlement
from localnet.audit import differing_heights
from localnet.demo.checkpoint import CheckedCheckpoint
from localnet.demo.job import DemoJob
from localnet.demo.report import DemoReport, RoundRow, WorkerRow
from primitives.keys import format_address


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    keep: bool = False
    text: Path | None = None
    """None: the source of Python's standard library."""
    rounds: int = 6
    nodes: int = 4
    workers: int = 4
    build: Path = Path("build")

    @property
    def folder(self) -> Path:
        """Everything but the report; emptied at the start."""
        return self.build / "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found once the job was over."""

    job: Job
    settlements: list[Settlement]
    checkpoint: CheckedCheckpoint
    checkpoints: list[Deal]
    logs: list[Deal]
    expired_gone: bool
    losses: tuple[float, float, float]
    """Of the genesis state, of the checkpoint, of a bigram model."""
    height: int
    validators: int
    hashes: dict[int, list[str]]
    supply_conserved: bool


def make_report(options: DemoOptions, job: DemoJob, found: Findings, *, wall_s: float) -> DemoReport:
    """The report, problems not yet looked for; `wall_s` is how long everything took."""
    rounds = tuple(_round_row(settlement, job.config.num_parameters) for settlement in found.settlements)
    payload, fp32 = sum(row.payload_bytes for row in rounds), sum(row.fp32_bytes for row in rounds)
    first, last, bigram = found.losses
    is_newest = found.checkpoint.state.round_index == found.job.settled_round
    return DemoReport(
        nodes=options.nodes,
        validators=found.validators,
        workers=options.workers,
        height=found.height,
        rounds_wanted=options.rounds,
        rounds_settled=found.job.settled_rounds,
        val_loss_first=first,
        val_loss_last=last,
        bigram_loss=bigram,
        payload_bytes=payload,
        fp32_bytes=fp32,
        compression=fp32 / payload if payload else 0.0,
        text_bytes=job.corpus.size_bytes,
        parameters=job.config.num_parameters,
        app_hashes_equal=not differing_heights(found.hashes),
        app_hashes_compared=len(found.hashes),
        supply_conserved=found.supply_conserved,
        expired_gone=found.expired_gone,
        checkpoint_root_verified=found.checkpoint.root_verified and is_newest,
        checkpoints_stored=len({deal.root for deal in found.checkpoints}),
        checkpoints_kept=sum(deal.status == "active" for deal in found.checkpoints),
        workers_with_logs=len({deal.owner for deal in found.logs} & {key.address for key in job.workers}),
        wall_s=round(wall_s, 1),
        rounds=rounds,
        files={
            "report": str(options.build / "demo.json"),
            "checkpoint": str(found.checkpoint.path),
            "text": str(job.text),
            "worker logs": str(options.folder / "worker*.log"),
            "node homes": str(options.folder / "net"),
        },
    )


def _round_row(settlement: Settlement, num_parameters: int) -> RoundRow:
    workers = tuple(
        WorkerRow(
            worker=format_address(outcome.worker),
            verdict=outcome.verdict,
            payload_bytes=outcome.payload_bytes,
            paid=outcome.paid,
            loss=outcome.loss_micro / 1e6,
        )
        for outcome in settlement.outcomes
    )
    return RoundRow(
        round_index=settlement.round_index,
        height=settlement.height,
        state_root=settlement.state_root.hex(),
        workers=workers,
        payload_bytes=sum(outcome.payload_bytes for outcome in settlement.outcomes),
        fp32_bytes=4 * num_parameters * len(settlement.blobs),
        paid=settlement.total_paid,
    )
