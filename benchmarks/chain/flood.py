"""Invalid transactions beside an honest load, of the kind that costs a node most: all is in order but the signature.

Form, fee and nonce are good, so nothing cheaper than verifying says that they are not; they never enter a block.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from abci_app.errors import BadSignature
from abci_app.transactions import Transaction
from benchmarks.chain.errors import BenchError
from localnet.load.errors import LoadError
from localnet.load.offer import BATCH, Batch, Offer, make_batches
from localnet.load.pipe import Pipe
from primitives.encoding import decode, encode

LANES: Final = 2
"""Connections of the flood."""
LOOK_S: Final = 0.005
"""How soon a connection whose answers are late is tried again."""


@dataclass(slots=True)
class Flood:
    """What has been sent until now."""

    sent: int = 0
    began_s: float = 0.0
    last_s: float = 0.0

    @property
    def tps(self) -> float:
        """What was really sent, transactions a second."""
        return (self.sent - BATCH) / (self.last_s - self.began_s) if self.last_s > self.began_s else 0.0


def spoil(txs: Sequence[bytes]) -> list[bytes]:
    """The same transactions, each with the signature of the next one (the last with the first's)."""
    parsed = [decode(tx, Transaction) for tx in txs]
    return [
        encode(Transaction(body=own.body, public_key=own.public_key, signature=other.signature))
        for own, other in zip(parsed, parsed[1:] + parsed[:1], strict=True)
    ]


@asynccontextmanager
async def flooding(url: str, txs: Sequence[bytes], tps: float) -> AsyncIterator[Flood]:
    """Send `txs` at that rate while the body runs; the first of them shows beforehand that they are refused as meant.

    Raises: BenchError, LoadError.
    """
    await _expect_refusal(url, txs[0])
    flood = Flood()
    batches = make_batches(Offer(kind="flood", lanes=tuple(txs[1:][lane::LANES] for lane in range(LANES))), [url])
    failures: list[str] = []
    async with AsyncExitStack() as stack:
        pipes = []
        for _ in range(LANES):
            pipes.append(await Pipe.connect(url, lambda: None, failures.append))
            stack.callback(pipes[-1].close)
        sending = asyncio.create_task(_send(pipes, batches, tps, flood))
        try:
            yield flood
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    if failures:
        raise LoadError(f"the flood broke off: {failures[0]}")


async def _send(pipes: Sequence[Pipe], batches: Sequence[Batch], tps: float, flood: Flood) -> None:
    loop = asyncio.get_running_loop()
    flood.began_s = loop.time()
    for batch in batches:
        await asyncio.sleep(flood.began_s + flood.sent / tps - loop.time())
        while not pipes[batch.lane].has_room:
            await asyncio.sleep(LOOK_S)
        pipes[batch.lane].send(batch.request)
        flood.sent += len(batch.texts)
        flood.last_s = loop.time()


async def _expect_refusal(url: str, tx: bytes) -> None:
    """Raises: BenchError when CheckTx says anything else than that the signature is bad."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/broadcast_tx_sync?tx=0x{tx.hex()}") as response:
        answer = await response.read()
    code = msgspec.json.decode(answer).get("result", {}).get("code")
    if code != BadSignature.code:
        raise BenchError(
            f"a transaction of the flood was answered with code {code}, not {BadSignature.code}: {answer!r}"
        )
