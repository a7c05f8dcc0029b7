"""Finds every submitted transaction in the blocks, or does not, and adds up."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from localnet.load.blocks import block_txs, failures
from localnet.load.drive import Drive, Pace, Record
from localnet.load.errors import LoadError
from localnet.load.offer import Batch, Offer
from localnet.load.results import LoadResult, intervals, median, percentile

GIVE_UP_S: Final = 10.0
"""So long without a block that holds one of the missing transactions, and they count as lost."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Where the submitted transactions were executed."""

    missing: dict[bytes, int]
    """Those not found yet, in base64, with the number of their batch."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(number of its batch, height of its block) of each transaction."""
    by_height: Counter[int] = field(default_factory=Counter)
    """How many of ours each block holds."""
    failures: Counter[str] = field(default_factory=Counter)
    """What the application said of those that it refused in a block, with how many."""


async def find_all(session: aiohttp.ClientSession, url: str, drive: Drive, batches: Sequence[Batch]) -> Found:
    """Look into all blocks since the start, and wait for more while transactions are missing.

    Raises: LoadError.
    """
    loop, commits = asyncio.get_running_loop(), drive.record.commits
    found = Found(missing=_by_text(batches[: len(drive.record.submitted_at)]))
    done, progress_s = 0, loop.time()
    while len(found.missing) > drive.refusals.total() and loop.time() < progress_s + GIVE_UP_S:
        if done == len(commits):
            await drive.next_commit(GIVE_UP_S)
            continue
        if commits[done].num_txs and await _search(session, url, commits[done].height, found):
            progress_s = loop.time()
        done += 1
    return found


def make_result(offer: Offer, pace: Pace, drive: Drive, found: Found, *, nodes: int, connections: int) -> LoadResult:
    """Raises: LoadError when the window is empty."""
    record = drive.record
    begin, end = record.begin, record.end
    if begin is None or end is None:
        raise LoadError("the run ended before its measured window; give it more --seconds")
    inside = [commit for commit in record.commits if begin.commit.height <= commit.height <= end.commit.height]
    window_s = end.commit.at_s - begin.commit.at_s
    committed = sum(found.by_height[commit.height] for commit in inside[1:])
    lags = sorted(_finality(record, found))
    gaps = intervals([commit.at_s for commit in inside])
    cpu = end.cpu - begin.cpu
    per_1000 = 1000 / committed if committed else 0.0
    refusals = drive.refusals
    num_found = found.by_height.total()
    return LoadResult(
        kind=offer.kind,
        nodes=nodes,
        connections=connections,
        messages_per_tx=offer.messages,
        tx_bytes=round(offer.tx_bytes, 1),
        rate=pace.rate,
        in_flight=pace.in_flight,
        window_s=window_s,
        offered_tps=(num_found + len(found.missing)) / max(record.stopped_s - record.started_s, 1e-9),
        committed_tps=committed / window_s,
        messages_per_s=committed * offer.messages / window_s,
        finality_p50_s=percentile(lags, 0.50),
        finality_p95_s=percentile(lags, 0.95),
        finality_p99_s=percentile(lags, 0.99),
        block_interval_median_s=median(gaps),
        block_interval_max_s=max(gaps),
        blocks=len(gaps),
        txs_per_block_max=max(found.by_height[commit.height] for commit in inside[1:]),
        cpu_s_app=cpu.app,
        cpu_s_engine=cpu.engine,
        cpu_s_per_1000_tx_app=cpu.app * per_1000,
        cpu_s_per_1000_tx_engine=cpu.engine * per_1000,
        submitted=num_found + len(found.missing),
        committed=num_found,
        failed=found.failures.total(),
        refused=refusals.total(),
        lost=max(0, len(found.missing) - refusals.total()),
        ran_out=record.ran_out,
        reasons=dict(refusals + found.failures),
    )


def _by_text(batches: Sequence[Batch]) -> dict[bytes, int]:
    return {text: number for number, batch in enumerate(batches) for text in batch.texts}


async def _search(session: aiohttp.ClientSession, url: str, height: int, found: Found) -> int:
    """Take note of our transactions in one block; their number."""
    ours: dict[int, int] = {}
    for place, text in enumerate(await block_txs(session, url, height)):
        number = found.missing.pop(text, None)
        if number is not None:
            ours[place] = number
    if ours:
        found.places += [(number, height) for number in ours.values()]
        found.by_height[height] += len(ours)
        failed = await failures(session, url, height)
        found.failures.update(text for place, text in failed.items() if place in ours)
    return len(ours)


def _finality(record: Record, found: Found) -> Iterator[float]:
    """Of each transaction that was submitted within the window."""
    assert record.begin is not None
    assert record.end is not None
    moments = {commit.height: commit.at_s for commit in record.commits}
    for number, height in found.places:
        submitted_s = record.submitted_at[number]
        if record.begin.commit.at_s <= submitted_s <= record.end.commit.at_s:
            yield moments[height] - submitted_s
