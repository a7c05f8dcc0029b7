"""Accounts for one load, and their money from the faucet. They are new each time, so their nonces begin at 0."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from abci_app.messages import Message, Transfer
from abci_app.transactions import MAX_MESSAGES
from abci_app.work import minimum_fee
from localnet.load.errors import LoadError
from localnet.load.target import Target
from node.client import TxResult
from primitives.amounts import format_tokens
from primitives.keys import PrivateKey

MOST_AT_ONCE: Final = 32
"""Transactions of the faucet that wait at a time; half of what the chain allows."""


def new_accounts(number: int) -> list[PrivateKey]:
    seed = secrets.token_hex(16)
    return [PrivateKey.from_seed(f"load/{seed}/{index}") for index in range(number)]


async def fund(
    target: Target, keys: Sequence[PrivateKey], amount_micro: int, on_progress: Callable[[int, int], None]
) -> None:
    """Give every account the same.

    Raises: LoadError when the faucet has too little, NodeError.
    """
    gifts = [Transfer(to=key.address, amount=amount_micro) for key in keys]
    await send_all(target, gifts, spent_micro=amount_micro * len(keys), on_progress=on_progress)


async def send_all(
    target: Target, messages: Sequence[Message], *, spent_micro: int, on_progress: Callable[[int, int], None]
) -> list[int]:
    """Have the faucet send messages, many in a transaction; the ids that they made, in their order.

    `spent_micro`: what they take besides the fees. `on_progress` is told how many transactions of all are executed.
    Raises: LoadError when the faucet has too little, NodeError.
    """
    parts = [messages[start : start + MAX_MESSAGES] for start in range(0, len(messages), MAX_MESSAGES)]
    need = spent_micro + sum(minimum_fee(part, target.params) for part in parts)
    at_once = asyncio.Semaphore(MOST_AT_ONCE)
    done = 0
    async with target.client(target.faucet) as client:
        _check_balance((await client.account(target.faucet.address)).balance, need)

        async def send(part: Sequence[Message]) -> TxResult:
            nonlocal done
            async with at_once:
                result = await client.send(part)
            done += 1
            on_progress(done, len(parts))
            return result

        results = await asyncio.gather(*(send(part) for part in parts))
    return [made for result in results for made in result.ids]


def _check_balance(balance: int, need: int) -> None:
    if balance < need:
        raise LoadError(
            f"the faucet has {format_tokens(balance)} tokens and this load takes {format_tokens(need)}: choose fewer "
            "--accounts or a lower --rate, or start a fresh network with `outerstep localnet up --home` elsewhere"
        )
