"""The signed transactions of the loads: payments of 200 bytes, and envelopes of many payments."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from abci_app.messages import Transfer
from benchmarks.chain.networks import CHAIN_ID
from localnet.load.signing import Form, sign_all
from primitives.keys import PrivateKey

PAYMENT_BYTES: Final = 200
"""Of a payment whose nonce is below 128, by the length of the chain id, the amount and the fee."""
AMOUNT_MICRO: Final = 100_000
GAS_PRICE_MICRO: Final = 1000


@dataclass(frozen=True, slots=True)
class Payments:
    """`messages` payments of a tenth of a token each, to accounts chosen by chance."""

    addresses: Sequence[bytes]
    messages: int

    def __call__(self, turn: int, account: int, chance: random.Random) -> tuple[Transfer, ...]:
        receivers = (self.addresses[chance.randrange(len(self.addresses))] for _ in range(self.messages))
        return tuple(Transfer(to=to, amount=AMOUNT_MICRO) for to in receivers)


def sign_payments(
    keys: Sequence[PrivateKey], num_txs: int, messages: int, on_progress: Callable[[int], None] = lambda _: None
) -> list[bytes]:
    """`num_txs` transactions among the accounts of `keys`, who take turns; `on_progress` is told how many there are."""
    content = Payments([key.address for key in keys], messages)
    form = Form(chain_id=CHAIN_ID, content=content, gas_price_micro=GAS_PRICE_MICRO)
    return sign_all(keys, num_txs, form, on_progress=on_progress)
