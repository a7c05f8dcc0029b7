"""What is going to be sent: transactions by connection, as whole HTTP requests that only have to be written.

CometBFT takes the calls of a JSON-RPC batch in order, at most 10 in one (its `rpc.max_request_batch_size`), and the
requests of a connection one after the other, so transactions on one connection arrive in the order given here.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final
from urllib.parse import urlsplit

BATCH: Final = 10
"""Most transactions in a request; the most that CometBFT takes as it is configured."""
_CALL: Final = b'{"jsonrpc":"2.0","id":0,"method":"broadcast_tx_async","params":{"tx":"%s"}}'
_HEAD: Final = b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Batch:
    """One request."""

    lane: int
    """Its connection."""
    request: bytes
    texts: tuple[bytes, ...]
    """Its transactions in base64, as they will stand in blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Transactions ready to be sent, by connection (lane), each in order."""

    kind: str
    lanes: tuple[Sequence[bytes], ...]
    messages: int = 1
    """In each transaction."""

    @property
    def num_txs(self) -> int:
        return sum(map(len, self.lanes))

    @property
    def tx_bytes(self) -> float:
        """Mean size; 0 where there are none."""
        return sum(len(tx) for lane in self.lanes for tx in lane) / max(1, self.num_txs)


def spread(txs: Sequence[bytes], num_accounts: int, num_lanes: int) -> tuple[list[bytes], ...]:
    """Transactions in which accounts take turns (number i is of account i mod `num_accounts`), to lanes by account."""
    lanes: tuple[list[bytes], ...] = tuple([] for _ in range(num_lanes))
    for number, tx in enumerate(txs):
        lanes[number % num_accounts % num_lanes].append(tx)
    return lanes


def batch_size(rate: float | None) -> int:
    """Transactions in a request: fewer at a low rate, so that none goes out more than 0.01 s before its time."""
    return BATCH if rate is None else max(1, min(BATCH, int(rate / 100)))


def make_batches(offer: Offer, urls: Sequence[str], size: int = BATCH) -> list[Batch]:
    """All requests, of `size` transactions each, in the order of sending: lanes take turns.

    Lane i goes to `urls[i mod len(urls)]`.
    """
    by_lane = [
        _lane_batches(lane, txs, urlsplit(urls[lane % len(urls)]).netloc.encode(), size)
        for lane, txs in enumerate(offer.lanes)
    ]
    return [batch for turn in zip_longest(*by_lane) for batch in turn if batch is not None]


def _lane_batches(lane: int, txs: Sequence[bytes], host: bytes, size: int) -> Iterator[Batch]:
    for start in range(0, len(txs), size):
        texts = tuple(base64.b64encode(tx) for tx in txs[start : start + size])
        body = b"[%s]" % b",".join(_CALL % text for text in texts)
        yield Batch(lane, _HEAD % (host, len(body)) + body, texts)
