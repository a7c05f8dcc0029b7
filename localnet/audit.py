"""Checks over the nodes' own answers: equal app hashes at every height, and money that neither appears nor vanishes."""

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from abci_app import tables
from abci_app.records import Account, Counters
from abci_app.state import MemoryState
from localnet.state import NodeState
from primitives.encoding import decode, encode

RANGE_LIMIT: Final = 1000
MAX_TRIES: Final = 20
MONEY_TABLES: Final = (
    tables.ACCOUNTS,
    tables.VALIDATORS,
    tables.UNBONDINGS,
    tables.WORKERS,
    tables.JOBS,
    tables.DEALS,
    tables.COUNTERS,
)


class AuditFailed(Exception):
    """A node gave no usable answer; the text says which and what."""


@dataclass(frozen=True, slots=True)
class SupplyCount:
    """All money of one node's state at one height, in 10^-6 token."""

    height: int
    parts: Mapping[str, int]
    """By place: balances, bonds, unbonding, escrows, burned."""
    supply: int
    """Fixed in genesis."""

    @property
    def conserved(self) -> bool:
        return sum(self.parts.values()) == self.supply


async def app_hashes(nodes: Sequence[NodeState], heights: Iterable[int]) -> dict[int, list[str]]:
    """What each node's own application answered for each height (CometBFT's block_results), in the nodes' order.

    Raises: AuditFailed when a node does not have a height.
    """
    async with aiohttp.ClientSession() as session:

        async def of_node(node: NodeState, height: int) -> str:
            result = await engine_call(session, node, "block_results", {"height": str(height)})
            return str(result["app_hash"])

        return {height: list(await asyncio.gather(*(of_node(node, height) for node in nodes))) for height in heights}


def differing_heights(hashes: Mapping[int, Sequence[str]]) -> list[int]:
    """Heights at which not all nodes have the same, non-empty app hash."""
    return sorted(height for height, answers in hashes.items() if len(set(answers)) != 1 or not answers[0])


async def count_supply(node: NodeState) -> SupplyCount:
    """Add up all money in a node's committed state, read table by table at one height.

    Raises: AuditFailed when the node does not answer or never stands still for long enough.
    """
    async with aiohttp.ClientSession() as session:
        for _ in range(MAX_TRIES):
            state, heights = MemoryState(), set[int]()
            for table in MONEY_TABLES:
                heights |= await _read_table(session, node, table.prefix, state)
            if len(heights) == 1:
                return _add_up(state, heights.pop())
    raise AuditFailed(f"{node.name}: blocks came faster than its state could be read, {MAX_TRIES} times")


async def read_accounts(node: NodeState) -> dict[bytes, Account]:
    """All accounts of a node's committed state by address; blocks that come meanwhile may change what is read later.

    Raises: AuditFailed.
    """
    state = MemoryState()
    async with aiohttp.ClientSession() as session:
        await _read_table(session, node, tables.ACCOUNTS.prefix, state)
    return {key[len(tables.ACCOUNTS.prefix) :]: account for key, account in tables.ACCOUNTS.iterate(state)}


async def engine_call(
    session: aiohttp.ClientSession, node: NodeState, method: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    """One JSON-RPC call to the node's CometBFT.

    Raises: AuditFailed with its error text.
    """
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}
    try:
        async with session.post(node.engine_url, json=request) as answer:
            body: dict[str, Any] = await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise AuditFailed(f"{node.name}: {method} {dict(params)} gave no answer: {error}") from error
    if "error" in body:
        raise AuditFailed(f"{node.name}: {method} {dict(params)}: {body['error']}")
    result: dict[str, Any] = body["result"]
    return result


async def _read_table(session: aiohttp.ClientSession, node: NodeState, prefix: bytes, state: MemoryState) -> set[int]:
    """Copy all entries under `prefix` into `state`. Returns the heights at which the answers were given."""
    heights, start = set[int](), b""
    while True:
        query = {"path": "range", "data": encode([prefix, start, RANGE_LIMIT]).hex()}
        response = (await engine_call(session, node, "abci_query", query))["response"]
        if response.get("code"):
            raise AuditFailed(f"{node.name}: range query: {response.get('log')}")
        heights.add(int(response.get("height") or 0))
        items = decode(base64.b64decode(response.get("value") or ""), list[tuple[bytes, bytes]])
        state.items.update(items)
        if len(items) < RANGE_LIMIT:
            return heights
        start = items[-1][0] + b"\x00"


def _add_up(state: MemoryState, height: int) -> SupplyCount:
    counters = tables.COUNTERS.get(state) or Counters()
    parts = {
        "balances": _total(tables.ACCOUNTS, state, "balance"),
        "bonds": _total(tables.VALIDATORS, state, "bond") + _total(tables.WORKERS, state, "bond"),
        "unbonding": _total(tables.UNBONDINGS, state, "amount"),
        "escrows": _total(tables.JOBS, state, "escrow") + _total(tables.DEALS, state, "escrow"),
        "burned": counters.burned,
    }
    return SupplyCount(height=height, parts=parts, supply=counters.supply)


def _total(table: tables.Table[Any], state: MemoryState, field: str) -> int:
    return sum(msgspec.structs.asdict(record)[field] for _, record in table.iterate(state))
