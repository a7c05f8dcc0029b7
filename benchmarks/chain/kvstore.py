"""Transactions for CometBFT's example application: `key=value`, each with a key of its own, unsigned."""

from localnet.load.offer import Offer

KEY_BYTES = 20


def kvstore_offer(num_txs: int, *, tx_bytes: int, lanes: int) -> Offer:
    """Transactions of `tx_bytes` each, spread over `lanes` connections."""
    filling = "v" * (tx_bytes - KEY_BYTES - 1)
    txs = [f"{number:0{KEY_BYTES}d}={filling}".encode() for number in range(num_txs)]
    return Offer(kind="kvstore", lanes=tuple(txs[lane::lanes] for lane in range(lanes)))
