"""Signed transactions, made before a load in several processes. Accounts take turns, each with its next nonce."""

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final, Protocol

from abci_app.messages import Message, Transfer
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from localnet.processes import uninterrupted
from primitives.keys import PrivateKey

CHUNK: Final = 2000
"""Transactions that a process signs at a time."""
AMOUNT_MICRO: Final = 1
"""Of a payment, unless more is wanted."""


class Content(Protocol):
    """What the transactions say; travels to other processes."""

    def __call__(self, turn: int, account: int, chance: random.Random) -> tuple[Message, ...]:
        """The messages of transaction number `turn` (0, 1, …) of account number `account`."""


@dataclass(frozen=True, slots=True)
class Payments:
    """`messages` payments each, to accounts chosen by chance."""

    addresses: Sequence[bytes]
    messages: int
    amount_micro: int = AMOUNT_MICRO

    def __call__(self, turn: int, account: int, chance: random.Random) -> tuple[Message, ...]:
        receivers = (self.addresses[chance.randrange(len(self.addresses))] for _ in range(self.messages))
        return tuple(Transfer(to=to, amount=self.amount_micro) for to in receivers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What all transactions of a load have in common."""

    chain_id: str
    content: Content
    gas_price_micro: int = 1
    first_nonce: int = 0
    """Of every account."""


@dataclass(frozen=True, slots=True)
class _Signer:
    form: Form
    keys: Sequence[PrivateKey]

    def sign(self, number: int, chance: random.Random) -> bytes:
        turn, account = divmod(number, len(self.keys))
        form = self.form
        messages = form.content(turn, account, chance)
        fee = total_work(messages) * form.gas_price_micro
        return sign_transaction(TxBody(form.chain_id, form.first_nonce + turn, fee, 0, messages), self.keys[account])


_signers: list[_Signer] = []
"""The one of this process, set once at its start."""


def sign_all(
    keys: Sequence[PrivateKey], num_txs: int, form: Form, *, on_progress: Callable[[int], None] = lambda _: None
) -> list[bytes]:
    """`num_txs` transactions; number i is of account i mod len(keys). Chance is the same every time.

    `on_progress` is told how many there are. Ctrl-C ends it once the chunks in work are done.
    """
    starts = range(0, num_txs, CHUNK)
    ends = [min(start + CHUNK, num_txs) for start in starts]
    signed: list[bytes] = []
    with ProcessPoolExecutor(
        min(len(starts), os.cpu_count() or 1) or 1,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(form, [key.secret for key in keys]),
    ) as pool:
        with uninterrupted():  # and so are the processes that begin here: Ctrl-C is for this one
            parts = pool.map(_sign, starts, ends)
        try:
            for part in parts:
                signed += part
                on_progress(len(signed))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return signed


def transfer_cost(messages: int, gas_price_micro: int = 1) -> int:
    """What one transaction of so many payments takes from its sender, 10^-6 token."""
    work = total_work((Transfer(to=bytes(20), amount=AMOUNT_MICRO),) * messages)
    return work * gas_price_micro + AMOUNT_MICRO * messages


def _begin(form: Form, secrets: Sequence[bytes]) -> None:
    _signers[:] = [_Signer(form, [PrivateKey(secret) for secret in secrets])]


def _sign(start: int, end: int) -> list[bytes]:
    chance = random.Random(start)
    return [_signers[0].sign(number, chance) for number in range(start, end)]
