"""Signed transactions, made before a load in several processes. Accounts take turns, each with its next nonce."""

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from typing import Final

from abci_app.messages import Transfer
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from primitives.keys import PrivateKey

CHUNK: Final = 2000
"""Transactions that a process signs at a time."""
AMOUNT_MICRO: Final = 1
_keys: list[PrivateKey] = []
"""Of this process, set once at its start."""


def sign_transfers(
    keys: Sequence[PrivateKey],
    num_txs: int,
    *,
    chain_id: str,
    messages: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[bytes]:
    """`num_txs` transactions of `messages` payments each; number i is of account i mod len(keys), nonces from 0 on.

    Receivers are chosen among the accounts by chance that is the same every time.
    """
    starts = range(0, num_txs, CHUNK)
    ends = [min(start + CHUNK, num_txs) for start in starts]
    signed: list[bytes] = []
    with ProcessPoolExecutor(
        min(len(starts), os.cpu_count() or 1) or 1,
        mp_context=get_context("spawn"),
        initializer=_keep_keys,
        initargs=([key.secret for key in keys],),
    ) as pool:
        for part in pool.map(_sign_transfers, starts, ends, repeat(chain_id), repeat(messages)):
            signed += part
            on_progress(len(signed))
    return signed


def transfer_cost(messages: int) -> int:
    """What one such transaction takes from its sender at the lowest price of work, 10^-6 token."""
    return total_work((Transfer(to=bytes(20), amount=AMOUNT_MICRO),) * messages) + AMOUNT_MICRO * messages


def _keep_keys(secrets: Sequence[bytes]) -> None:
    _keys[:] = [PrivateKey(secret) for secret in secrets]


def _sign_transfers(start: int, end: int, chain_id: str, messages: int) -> list[bytes]:
    chance = random.Random(start)
    return [_transfer(number, chain_id, messages, chance) for number in range(start, end)]


def _transfer(number: int, chain_id: str, messages: int, chance: random.Random) -> bytes:
    nonce, index = divmod(number, len(_keys))
    payments = tuple(
        Transfer(to=_keys[chance.randrange(len(_keys))].address, amount=AMOUNT_MICRO) for _ in range(messages)
    )
    return sign_transaction(TxBody(chain_id, nonce, total_work(payments), 0, payments), _keys[index])
