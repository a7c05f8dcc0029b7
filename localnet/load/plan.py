"""How a load is made: what was asked for, and the numbers that follow from it."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from abci_app.execution import PENDING_WINDOW
from abci_app.params import Params
from localnet.load.drive import Pace
from localnet.load.errors import LoadError
from localnet.load.offer import BATCH

Kind = Literal["transfers", "commitments"]
WARM_UP_S: Final = 2.0
SPARE_S: Final = 4.0
"""A window begins and ends with a block: so much longer it may become."""
MOST_IN_FLIGHT: Final = 4000
"""CometBFT's mempool takes 10,000 transactions, and on a node a block behind still holds the last block's."""
MOST_WAITING: Final = PENDING_WINDOW // 2
"""Of one account."""
MOST_TPS: Final = 15_000.0
"""So many transactions a second are prepared for loads as fast as it goes, where each node has a processor."""
MOST_BLOCKS_PER_S: Final = 4.5
"""Full ones, for the same purpose."""
MOST_TXS: Final = 1_000_000
"""All are held in memory, signed and as requests."""
FEWEST_ACCOUNTS: Final = 100
"""Unless fewer are asked for."""
MOST_IDLE_S: Final = 5.0
"""CometBFT closes a connection that says nothing for 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What can be prepared of one kind."""

    messages: int
    """Of all transactions together."""
    seconds: float
    accounts: int
    """Unless more are asked for."""


LIMITS: Final[dict[Kind, Limits]] = {
    "transfers": Limits(messages=4_000_000, seconds=600.0, accounts=2000),
    # A commitment takes a membership beforehand, as much work as itself; rounds take them for 1,500 blocks, of which
    # there may be ten in a second; and every worker's bond stays locked.
    "commitments": Limits(messages=200_000, seconds=60.0, accounts=512),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for."""

    kind: Kind
    rate: float | None
    """Transactions a second; None: as many as go."""
    seconds: float
    messages: int
    connections: int | None
    """None: one for each node."""
    accounts: int | None
    """None: as many as the rate takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is going to be done."""

    kind: Kind
    pace: Pace
    messages: int
    """In each transaction."""
    connections: int
    accounts: int
    turns: int
    """Transactions of each account."""

    @property
    def num_txs(self) -> int:
        return self.accounts * self.turns


def make_plan(wish: Wish, *, nodes: int, cores: int, params: Params, tx_work: int) -> Plan:
    """`cores`: processors that the nodes share; `tx_work`: of one transaction of this load.

    Raises: LoadError when more is wanted than can be prepared.
    """
    block_txs = params.max_block_work / tx_work
    tps = wish.rate or min(MOST_TPS, MOST_BLOCKS_PER_S * block_txs) * min(1.0, cores / nodes)
    accounts = wish.accounts or min(LIMITS[wish.kind].accounts, max(FEWEST_ACCOUNTS, math.ceil(tps)))
    in_flight = max(BATCH, min(MOST_IN_FLIGHT, MOST_WAITING * accounts, int(2 * block_txs)))
    return Plan(
        kind=wish.kind,
        pace=Pace(rate=wish.rate, in_flight=in_flight, seconds=wish.seconds, warm_up_s=WARM_UP_S),
        messages=wish.messages,
        connections=_connections(wish, nodes),
        accounts=accounts,
        turns=math.ceil(_num_txs(wish, tps, accounts) / accounts),
    )


def _num_txs(wish: Wish, tps: float, accounts: int) -> int:
    """How many to prepare, at least one for each account. As fast as it goes, the load may run out of the most there
    can be.

    Raises: LoadError.
    """
    limits = LIMITS[wish.kind]
    if wish.seconds > limits.seconds:
        raise LoadError(f"--seconds is {wish.seconds:g}; with {wish.kind} it can be at most {limits.seconds:g}")
    most = min(MOST_TXS, limits.messages // wish.messages)
    num_txs = max(accounts, math.ceil(tps * (wish.seconds + WARM_UP_S + SPARE_S)))
    if num_txs > most and (wish.rate is not None or accounts > most):
        raise LoadError(
            f"this load needs {num_txs:,} transactions prepared, and {most:,} of {wish.kind} with this many messages "
            "can be: choose a lower --rate, fewer --messages, fewer --seconds or fewer --accounts"
        )
    return min(num_txs, most)


def _connections(wish: Wish, nodes: int) -> int:
    """Raises: LoadError for more than the rate keeps busy."""
    most = max(1, int(wish.rate * MOST_IDLE_S)) if wish.rate is not None else None
    if wish.connections is None:
        return nodes if most is None else min(nodes, most)
    if most is not None and wish.connections > most:
        raise LoadError(
            f"{wish.connections} connections are too many for {wish.rate:g} transactions a second: CometBFT closes "
            f"those that are silent for long; at most {most}"
        )
    return wish.connections
