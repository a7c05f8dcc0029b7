"""The demo from beginning to end; each part stands in its own module beside this one."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import psutil
from rich.console import Console

from abci_app.records import Deal, Job, Settlement
from localnet.audit import SupplyCount, app_hashes, count_supply, differing_heights
from localnet.demo.checkpoint import CheckedCheckpoint, checkpoint_deals, fetch_newest, judge, log_deals
from localnet.demo.expiry import is_listed, is_served, search_expired
from localnet.demo.job import DemoJob, fund, open_job, take_text
from localnet.demo.report import DemoReport, RoundRow, WorkerRow, find_problems, write_report
from localnet.demo.watch import LiveView, look
from localnet.demo.workers import Workers
from localnet.homes import HomesError, existing_network
from localnet.network import Localnet
from node.client import Client
from node.errors import NodeError
from primitives.keys import PrivateKey, format_address

WATCH_S: Final = 0.5
MAX_TRAINING_S: Final = 900.0
WORKERS_END_S: Final = 120.0
OUTAGE_S: Final = 30.0
"""How long the watched node may not answer before the demo gives up."""


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


class DemoFailed(NodeError):
    """The job did not end as it should."""


class Stage:
    """Says what is being done and how long it took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_s = psutil.Process().create_time()

    @property
    def seconds(self) -> float:
        """Since this process was started, imports included."""
        return time.time() - self._started_s

    @contextlib.contextmanager
    def __call__(self, title: str) -> Iterator[None]:
        began = self.seconds
        self.say(f"{title} …")
        yield
        self.say(f"{title}: {self.seconds - began:.1f} s")

    def say(self, text: str) -> None:
        self._console.print(f"[{self.seconds:6.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)


async def run_demo(options: DemoOptions, console: Console, *, finished: Callable[[DemoReport], None]) -> None:
    """Run everything, write demo.json, call `finished` with it (before a kept network is waited for).

    Raises: what its parts raise; no process is left running.
    """
    stage = Stage(console)
    _clear(options.folder)
    corpus = await asyncio.to_thread(take_text, options.text, options.folder / "text")
    net = Localnet(options.folder / "net", nodes=options.nodes, say=stage.say)
    async with net:
        owner = PrivateKey.generate()
        keys = [PrivateKey.generate() for _ in range(options.workers)]
        with stage("funding the job's owner and the workers"):
            await fund(net, owner, keys)
        with stage(f"storing {corpus.size_bytes:,} bytes of text and opening the job"):
            job = await open_job(net, owner, keys, text=options.folder / "text", corpus=corpus, rounds=options.rounds)
        stage.say(f"job {job.id}: {job.config.num_parameters:,} parameters, {options.rounds} rounds")
        with Workers(options.folder, net.nodes, job.id, keys) as workers:
            await _train(net, job, workers, console, stage)
        report = await _conclude(net, job, options, stage)
        report = msgspec.structs.replace(report, problems=find_problems(report))
        write_report(report, options.build / "demo.json")
        finished(report)
        if options.keep:
            stage.say(f"the network stays up until Ctrl-C: {', '.join(node.url for node in net.nodes)}")
            await asyncio.Event().wait()


def _clear(folder: Path) -> None:
    """Remove what an earlier run left; never under the feet of one that still runs.

    Raises: HomesError.
    """
    earlier = existing_network(folder / "net")
    if earlier is not None and earlier.owner.find() is not None:
        raise HomesError(
            f"a demo is running in {folder} (process {earlier.owner.pid}); stop it, or use another --build"
        )
    if folder.exists():
        shutil.rmtree(folder)


async def _train(net: Localnet, job: DemoJob, workers: Workers, console: Console, stage: Stage) -> None:
    """Watch until the job is over and the workers have stored what they store at its end."""
    names = [(worker.name, worker.key.address, worker.home) for worker in workers.all]
    answered = stage.seconds
    async with net.client(0) as client:
        with LiveView(console) as live:
            while True:
                net.check_alive()
                workers.check()
                try:
                    view = await look(client, job.id, names)
                    answered = stage.seconds
                except NodeError:
                    if stage.seconds - answered > OUTAGE_S:
                        raise
                    await asyncio.sleep(WATCH_S)
                    continue
                live.show(view, stage.seconds)
                if view.status in ("done", "cancelled"):
                    break
                if stage.seconds > MAX_TRAINING_S:
                    raise DemoFailed(f"after {stage.seconds:.0f} s only {view.settled} rounds are settled")
                await asyncio.sleep(WATCH_S)
    with stage("the workers store the last checkpoint and their logs"):
        async with asyncio.timeout(WORKERS_END_S):
            while workers.running:
                workers.check()
                await asyncio.sleep(WATCH_S)


async def _conclude(net: Localnet, job: DemoJob, options: DemoOptions, stage: Stage) -> DemoReport:
    """Everything that is checked once the job is over."""
    async with net.client(0, job.owner) as client:
        record = await client.job(job.id)
        assert record is not None, "the job was watched to its end"
        with stage("waiting for the stored logs to expire"):
            expired_gone = await _expire_logs(net, client, job, stage)
        with stage("fetching and checking the newest checkpoint"):
            checkpoint = await fetch_newest(client, job.id, options.folder)
            kept = len(await checkpoint_deals(client, job.id))
        with stage("judging it on held-out text"):
            losses = await asyncio.to_thread(judge, job, checkpoint.state)
        with stage("comparing app hashes and counting the money on all nodes"):
            height = await client.height()
            hashes, counts = await _audit(net, height)
        settlements = await client.every(lambda cursor: client.settlements(job.id, cursor))
    differing = differing_heights(hashes)
    if differing:
        stage.say(f"app hashes differ at heights {differing[:20]}")
    return _report(
        options, job, record, settlements, checkpoint, losses,
        height=height, kept=kept, expired_gone=expired_gone, app_hashes_compared=len(hashes),
        app_hashes_equal=not differing, supply_conserved=_all_conserved(counts, stage), wall_s=stage.seconds,
    )  # fmt: skip


async def _expire_logs(net: Localnet, client: Client, job: DemoJob, stage: Stage) -> bool:
    """Show a log while it is served, wait until the last one's end has passed, and look for all of them everywhere."""
    deals = await log_deals(client, job.id)
    if not deals:
        stage.say("no worker stored a log")
        return False
    last = max(deals, key=lambda deal: deal.end_height)
    await _show_living(net, last, stage)
    await net.wait_for_height(last.end_height + 1, timeout_s=300)
    searches = [await search_expired(net.nodes, deal) for deal in deals]
    for search in searches:
        for place in search.found:
            stage.say(f"log deal {search.deal_id} ended at height {search.end_height} and is still at {place}")
    looked = sum(search.looked_at for search in searches)
    stage.say(f"{len(deals)} logs looked for in {looked} answers of {len(net.nodes)} nodes")
    return not any(search.found for search in searches)


async def _show_living(net: Localnet, deal: Deal, stage: Stage) -> None:
    listed, served = await is_listed(net.nodes, deal), await is_served(net.nodes, deal)
    stage.say(
        f"log deal {deal.id} ({deal.size:,} bytes) ends at height {deal.end_height}; "
        f"now listed in {len(listed)} places and served at {len(served)}"
    )


async def _audit(net: Localnet, height: int) -> tuple[dict[int, list[str]], list[SupplyCount]]:
    await net.wait_for_height(height)
    hashes = await app_hashes(net.nodes, range(1, height + 1))
    return hashes, [await count_supply(node) for node in net.nodes]


def _all_conserved(counts: list[SupplyCount], stage: Stage) -> bool:
    for index, count in enumerate(counts):
        if not count.conserved:
            stage.say(f"node{index} at height {count.height}: {dict(count.parts)} is not {count.supply}")
    return all(count.conserved for count in counts)


def _report(
    options: DemoOptions,
    job: DemoJob,
    record: Job,
    settlements: list[Settlement],
    checkpoint: CheckedCheckpoint,
    losses: tuple[float, float, float],
    *,
    height: int,
    kept: int,
    app_hashes_equal: bool,
    app_hashes_compared: int,
    supply_conserved: bool,
    expired_gone: bool,
    wall_s: float,
) -> DemoReport:
    rounds = tuple(_round_row(settlement, job.config.num_parameters) for settlement in settlements)
    payload, fp32 = sum(row.payload_bytes for row in rounds), sum(row.fp32_bytes for row in rounds)
    first, last, bigram = losses
    is_newest = checkpoint.state.round_index == record.settled_round
    return DemoReport(
        validators=options.nodes,
        workers=options.workers,
        height=height,
        rounds_wanted=options.rounds,
        rounds_settled=record.settled_rounds,
        val_loss_first=first,
        val_loss_last=last,
        bigram_loss=bigram,
        payload_bytes=payload,
        fp32_bytes=fp32,
        compression=fp32 / payload if payload else 0.0,
        text_bytes=job.corpus.size_bytes,
        parameters=job.config.num_parameters,
        app_hashes_equal=app_hashes_equal,
        app_hashes_compared=app_hashes_compared,
        supply_conserved=supply_conserved,
        expired_gone=expired_gone,
        checkpoint_root_verified=checkpoint.root_verified and is_newest,
        checkpoints_kept=kept,
        wall_s=round(wall_s, 1),
        rounds=rounds,
        files={
            "report": str(options.build / "demo.json"),
            "checkpoint": str(checkpoint.path),
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
