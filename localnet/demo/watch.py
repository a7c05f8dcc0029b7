"""The live table: what the chain says about the job and its workers right now."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from abci_app.records import Settlement, Submission
from node.client import Client
from primitives.amounts import format_tokens
from primitives.keys import format_address


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker at this moment."""

    name: str
    address: str
    doing: str
    """What it says of itself, or what the chain last heard of it."""
    loss: float | None
    """Training loss of its newest update, nats per token."""
    bytes_sent: int
    """Payloads certified so far."""
    paid: int
    """10^-6 token."""


@dataclass(frozen=True, slots=True)
class JobView:
    """The job at this moment."""

    height: int
    status: str
    settled: int
    wanted: int
    round_index: int
    phase: str
    workers: tuple[WorkerView, ...]

    @property
    def line(self) -> str:
        """For a screen that is no terminal; changes only when something happened."""
        losses = [worker.loss for worker in self.workers if worker.loss is not None]
        loss = f"{sum(losses) / len(losses):.3f}" if losses else "-"
        sent, paid = sum(w.bytes_sent for w in self.workers), sum(w.paid for w in self.workers)
        return (
            f"round {self.round_index} {self.phase:<9} settled {self.settled}/{self.wanted} "
            f"loss {loss} sent {sent:,} B paid {format_tokens(paid)}"
        )


async def look(client: Client, job_id: int, workers: Sequence[tuple[str, bytes, Path]]) -> JobView:
    """Read everything that the table shows. `workers` are (name, address, home folder).

    Raises: NodeError when the node does not answer.
    """
    job = await client.job(job_id)
    assert job is not None, "the job was created before it is watched"
    now = await client.round(job_id)
    submissions = await client.submissions(job_id, now.index) if now else []
    settlements = await client.every(lambda cursor: client.settlements(job_id, cursor))
    return JobView(
        height=await client.height(),
        status=job.status,
        settled=job.settled_rounds,
        wanted=job.terms.num_rounds,
        round_index=now.index if now else 0,
        phase="waiting" if now is None else now.phase if now.status == "open" else now.status,
        workers=tuple(_worker(name, address, home, submissions, settlements) for name, address, home in workers),
    )


def _worker(
    name: str, address: bytes, home: Path, submissions: Sequence[Submission], settlements: Sequence[Settlement]
) -> WorkerView:
    past = [outcome for item in settlements for outcome in item.outcomes if outcome.worker == address]
    now = next((item for item in submissions if item.worker == address), None)
    settled = bool(settlements) and now is not None and now.round_index <= settlements[-1].round_index
    revealed = now is not None and bool(now.blob) and not settled
    losses = [outcome.loss_micro for outcome in past if outcome.payload_bytes]
    losses += [now.loss_micro] if now is not None and revealed else []
    heard = "joining" if now is None else "attested" if now.state_root else "revealed" if now.blob else "committed"
    return WorkerView(
        name=name,
        address=format_address(address),
        doing=_own_words(home) or heard,
        loss=losses[-1] / 1e6 if losses else None,
        bytes_sent=sum(outcome.payload_bytes for outcome in past)
        + (now.payload_bytes if now is not None and revealed else 0),
        paid=sum(outcome.paid for outcome in past),
    )


def _own_words(home: Path) -> str:
    """What the worker says in its status file; empty when it says nothing (yet)."""
    try:
        status = json.loads((home / "status.json").read_bytes())
        state = str(status["state"])
        return f"{state} {status['step']}/{status['num_steps']}" if state == "training" else state
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class LiveView:
    """One table that is redrawn, or on anything but a terminal a line for each change. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last = ""

    def __enter__(self) -> "LiveView":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, view: JobView, seconds: float) -> None:
        """Draw what is new."""
        if self._live is not None:
            self._live.update(_draw(view, seconds), refresh=True)
        elif view.line != self._last:
            self._console.print(
                f"[{seconds:6.1f} s] height {view.height} {view.line}", markup=False, highlight=False, soft_wrap=True
            )
            self._last = view.line


def _draw(view: JobView, seconds: float) -> Group:
    head = Text(
        f"height {view.height}   round {view.round_index}   phase {view.phase}   "
        f"settled {view.settled} of {view.wanted}   {seconds:.0f} s"
    )
    table = Table("worker", "address", "doing", "loss", "bytes sent", "paid")
    for worker in view.workers:
        table.add_row(
            worker.name,
            f"{worker.address[:12]}…{worker.address[-4:]}",
            worker.doing,
            "" if worker.loss is None else f"{worker.loss:.3f}",
            f"{worker.bytes_sent:,}",
            format_tokens(worker.paid),
        )
    return Group(head, table)
