"""What the demo shows at its end."""

from rich.console import Console
from rich.table import Table

from localnet.demo.report import DemoReport
from primitives.amounts import format_tokens


def show_result(console: Console, report: DemoReport) -> None:
    """The rounds, the checks, and where everything lies."""
    console.print(_rounds(report))
    console.print(_checks(report))
    for what, path in report.files.items():
        console.print(f"  {what}: {path}", markup=False, highlight=False, soft_wrap=True)
    if report.problems:
        console.print("not as it should be:", style="red")
        for problem in report.problems:
            console.print(f"  - {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(f"all as it should be, in {report.wall_s:.0f} s", style="green", highlight=False)


def _rounds(report: DemoReport) -> Table:
    table = Table(
        "round", "height", "included", "loss", "bytes", "fp32 bytes", "smaller", "paid", title="settled rounds"
    )
    for row in report.rounds:
        paid = [worker for worker in row.workers if worker.verdict == "paid"]
        others = [f"{worker.worker[-4:]}: {worker.verdict}" for worker in row.workers if worker.verdict != "paid"]
        loss = sum(worker.loss for worker in paid) / len(paid) if paid else float("nan")
        table.add_row(
            str(row.round_index),
            str(row.height),
            ", ".join([*(worker.worker[-4:] for worker in paid), *others]),
            f"{loss:.3f}",
            f"{row.payload_bytes:,}",
            f"{row.fp32_bytes:,}",
            f"{row.fp32_bytes / row.payload_bytes:.0f}x" if row.payload_bytes else "",
            format_tokens(row.paid),
        )
    return table


def _checks(report: DemoReport) -> Table:
    table = Table("checked", "found", title="held-out text, money, storage")
    yes = {True: "yes", False: "NO"}
    table.add_row("loss of the genesis state", f"{report.val_loss_first:.4f} nats per token")
    table.add_row("loss of the newest checkpoint", f"{report.val_loss_last:.4f}")
    table.add_row("loss of a bigram model of the same text", f"{report.bigram_loss:.4f}")
    table.add_row("payloads smaller than fp32", f"{report.compression:.0f}x")
    table.add_row(
        f"app hashes equal on {report.validators} nodes at {report.app_hashes_compared} heights",
        yes[report.app_hashes_equal],
    )
    table.add_row("supply conserved on every node", yes[report.supply_conserved])
    table.add_row("expired logs gone from every node", yes[report.expired_gone])
    table.add_row("checkpoint's root proven against the chain", yes[report.checkpoint_root_verified])
    table.add_row("checkpoints stored, and kept", f"{report.checkpoints_stored}, {report.checkpoints_kept}")
    return table
