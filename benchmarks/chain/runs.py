"""Runs one load of the plan on a fresh network."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import msgspec
import psutil

from benchmarks.chain.flood import Flood, flooding
from benchmarks.chain.networks import network
from benchmarks.chain.plan import Load
from localnet.load.offer import Offer
from localnet.load.results import LoadResult
from localnet.load.run import run_load
from localnet.load.usage import Measured


class Run(LoadResult, frozen=True, kw_only=True):
    """What came of one load."""

    part: str
    application: str
    round_index: int
    rss_before_mib: float
    """Of all applications together, before the load; 0 where the application is built into the engine."""
    rss_after_mib: float
    flood_tps: float
    """Invalid transactions a second that were sent beside those that count here."""


async def run_one(load: Load, offer: Offer, flood_txs: Sequence[bytes], on_progress: Callable[[float], None]) -> Run:
    """Raises: BenchError, LoadError, PortError, SetupError, OSError."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(network(load.application, load.nodes))
        before, flood = _rss_mib(running.measured), Flood()
        if load.flood_tps:
            flood = await stack.enter_async_context(flooding(running.urls[0], flood_txs, load.flood_tps))
        result = await run_load(offer, load.pace, running.urls, running.measured, on_progress)
        after = _rss_mib(running.measured)
    return Run(
        **msgspec.structs.asdict(result),
        part=load.part,
        application=load.application,
        round_index=load.round_index,
        rss_before_mib=before,
        rss_after_mib=after,
        flood_tps=flood.tps,
    )


def _rss_mib(measured: Measured) -> float:
    processes = [each for app in measured.apps for each in (app, *app.children(recursive=True))]
    return sum(_rss_bytes(each) for each in processes) / 2**20


def _rss_bytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss)
