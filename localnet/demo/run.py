"""The demo from beginning to end; each part stands in its own module beside this one."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil
from rich.console import Console

from abci_app.records import Deal
from localnet.audit import SupplyCount, app_hashes, count_supply, differing_heights
from localnet.demo.checkpoint import checkpoint_deals, fetch_newest, judge, log_deals
from localnet.demo.expiry import look_for
from localnet.demo.findings import DemoOptions, Findings, make_report
from localnet.demo.job import DemoJob, fund, open_job, take_text
from localnet.demo.report import DemoReport, find_problems, write_report
from localnet.demo.watch import LiveView, look
from localnet.demo.workers import Workers
from localnet.homes import HomesError, existing_network
from localnet.network import Localnet
from node.errors import NodeError
from primitives.keys import PrivateKey

WATCH_S: Final = 0.5
MAX_TRAINING_S: Final = 900.0
WORKERS_END_S: Final = 120.0
OUTAGE_S: Final = 30.0
"""How long the watched node may not answer before the demo gives up."""


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
            logs = await log_deals(client, job.id)
            expired_gone = await _expire_logs(net, logs, stage)
        with stage("fetching and checking the newest checkpoint"):
            checkpoint = await fetch_newest(client, job.id, options.folder)
        with stage("judging it on held-out text"):
            losses = await asyncio.to_thread(judge, job, checkpoint.state)
        with stage("comparing app hashes and counting the money on all nodes"):
            height = await client.height()
            hashes, counts = await _audit(net, height)
        engine = await client.engine_validators()
        findings = Findings(
            job=record,
            settlements=await client.every(lambda cursor: client.settlements(job.id, cursor)),
            checkpoint=checkpoint,
            checkpoints=await checkpoint_deals(client, job.id),
            logs=logs,
            expired_gone=expired_gone,
            losses=losses,
            height=height,
            validators=len(engine.validators) if engine is not None else 0,
            hashes=hashes,
            supply_conserved=_all_conserved(counts, stage),
        )
    if differing_heights(hashes):
        stage.say(f"app hashes differ at heights {differing_heights(hashes)[:20]}")
    return make_report(options, job, findings, wall_s=stage.seconds)


async def _expire_logs(net: Localnet, deals: list[Deal], stage: Stage) -> bool:
    """Show a log while it is served, wait until the last one's end has passed, and look for all of them everywhere."""
    if not deals:
        stage.say("no worker stored a log")
        return False
    last = max(deals, key=lambda deal: deal.end_height)
    await _show_living(net, last, stage)
    await net.wait_for_height(last.end_height + 1, timeout_s=300)
    searches = [await look_for(net.nodes, deal) for deal in deals]
    for search in searches:
        for place in search.found:
            stage.say(f"log deal {search.deal_id} ended at height {search.end_height} and is still at {place}")
    looked = sum(search.looked_at for search in searches)
    stage.say(f"{len(deals)} logs looked for by {looked} looks at {len(net.nodes)} nodes")
    return not any(search.found for search in searches)


async def _show_living(net: Localnet, deal: Deal, stage: Stage) -> None:
    search = await look_for(net.nodes, deal)
    stage.say(
        f"log deal {deal.id} ({deal.size:,} bytes) ends at height {deal.end_height}; "
        f"now found by {len(search.found)} of {search.looked_at} looks at the nodes"
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
