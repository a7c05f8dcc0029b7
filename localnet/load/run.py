"""One load from prepared transactions to its result."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import aiohttp

from localnet.load.accounting import find_all, make_result
from localnet.load.drive import Drive, Pace
from localnet.load.offer import Offer, batch_size, make_batches
from localnet.load.results import LoadResult
from localnet.load.usage import Measured


def nothing(_: float) -> None:
    """Progress that nobody wants to know."""


async def run_load(
    offer: Offer,
    pace: Pace,
    urls: Sequence[str],
    measured: Measured,
    on_progress: Callable[[float], None] = nothing,
) -> LoadResult:
    """Send `offer` to the engines at `urls` (CometBFT's RPC of each node) and find it in the blocks of the first.

    Raises: LoadError.
    """
    batches = make_batches(offer, urls, batch_size(pace.rate))
    drive = Drive(batches, pace, measured, on_progress)
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as session:
        await drive.open(stack, urls, len(offer.lanes))
        await drive.until_measured()
        found = await find_all(session, urls[0], drive, batches)
    return make_result(offer, pace, drive, found, nodes=len(urls), connections=len(offer.lanes))
