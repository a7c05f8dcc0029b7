"""Transactions for the loads, made once and used on every fresh network: all of them have the same chain id."""

from collections.abc import Callable
from typing import Final

from benchmarks.chain.flood import spoil
from benchmarks.chain.kvstore import kvstore_offer
from benchmarks.chain.networks import ACCOUNTS, FLOODERS
from benchmarks.chain.payments import PAYMENT_BYTES, sign_payments
from benchmarks.chain.plan import Load
from localnet.load.offer import Offer, spread

LANES: Final = 4
"""Connections of a load; as many as there are nodes in the largest network."""


class Prepared:
    """Keeps what was signed, by messages in an envelope. A shorter load takes the first of a longer one."""

    def __init__(self, on_progress: Callable[[str, float], None]) -> None:
        """`on_progress` is told what is being signed and the share that is done."""
        self._on_progress = on_progress
        self._signed: dict[int, list[bytes]] = {}
        self._spoilt: list[bytes] = []

    def sign(self, num_txs: int, messages: int) -> list[bytes]:
        """The first `num_txs` transactions of `messages` payments each."""
        if len(self._signed.get(messages, ())) < num_txs:
            what = f"signing {num_txs} transactions with {messages} messages each"

            def tell(done: int) -> None:
                self._on_progress(what, done / num_txs)

            self._signed[messages] = sign_payments(ACCOUNTS, num_txs, messages, tell)
        return self._signed[messages][:num_txs]

    def offer(self, load: Load) -> Offer:
        """What `load` sends. The Go kvstore gets transactions of the size of ours."""
        if load.application == "kvstore":
            return kvstore_offer(load.num_txs, tx_bytes=PAYMENT_BYTES, lanes=LANES)
        txs = self.sign(load.num_txs, load.messages)
        return Offer(kind="transfers", lanes=spread(txs, len(ACCOUNTS), LANES), messages=load.messages)

    def flood_txs(self, load: Load) -> list[bytes]:
        """The invalid transactions that are sent beside it."""
        if len(self._spoilt) < load.num_flood_txs:
            self._spoilt = spoil(sign_payments(FLOODERS, load.num_flood_txs, 1))
        return self._spoilt[: load.num_flood_txs]
