"""The signed transactions of the loads: payments of 200 bytes, and envelopes of many payments."""

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.chain.networks import CHAIN_ID
from localnet.load.signing import Form, Payments, sign_all
from primitives.keys import PrivateKey

PAYMENT_BYTES: Final = 200
"""Of a payment whose nonce is below 128, by the length of the chain id, the amount and the fee."""
AMOUNT_MICRO: Final = 100_000
GAS_PRICE_MICRO: Final = 1000


def sign_payments(
    keys: Sequence[PrivateKey], num_txs: int, messages: int, on_progress: Callable[[int], None] = lambda _: None
) -> list[bytes]:
    """`num_txs` transactions among the accounts of `keys`, who take turns; `on_progress` is told how many there are."""
    content = Payments([key.address for key in keys], messages, AMOUNT_MICRO)
    form = Form(chain_id=CHAIN_ID, content=content, gas_price_micro=GAS_PRICE_MICRO)
    return sign_all(keys, num_txs, form, on_progress=on_progress)
