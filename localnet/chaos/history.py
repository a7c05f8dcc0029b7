"""The chain as each node keeps it: every block it has, with what came of its transactions, read from its engine."""

import asyncio
import base64
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from abci_app.params import parse_genesis
from abci_app.records import Account
from abci_app.transactions import tx_hash
from localnet.audit import engine_call
from localnet.state import NodeState
from node.engine_files import GENESIS_NAME
from primitives.keys import parse_address

AT_ONCE: Final = 8
"""Heights asked for at a time."""
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class BlockTx:
    """A transaction in a block."""

    data: bytes
    code: int
    charged: bool
    """Its fee was taken and its nonce used up, be it refused or not."""

    @property
    def hash(self) -> bytes:
        return tx_hash(self.data)


@dataclass(frozen=True, slots=True)
class Block:
    height: int
    hash: str
    app_hash: str
    """What the node's own application answered after this block."""
    time_s: float
    """Of the header, since 1970."""
    txs: tuple[BlockTx, ...]


History = Mapping[int, Block]
"""A node's blocks by height."""


async def read_history(node: NodeState, height: int) -> dict[int, Block]:
    """All blocks of a node up to `height`, from the first that it keeps results of.

    Raises: AuditFailed when it does not answer or lacks one.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        status = await engine_call(session, node, "status", {})
        first = int(status["sync_info"]["earliest_block_height"])
        blocks: dict[int, Block] = {}
        for start in range(first, height + 1, AT_ONCE):
            heights = range(start, min(start + AT_ONCE, height + 1))
            found = await asyncio.gather(*(_read_block(session, node, h) for h in heights))
            blocks |= {block.height: block for block in found}
    return blocks


def genesis_accounts(node: NodeState) -> dict[bytes, Account]:
    """Accounts before the first block, by address, as the node's genesis file gives them.

    Raises: OSError, GenesisError.
    """
    document = msgspec.json.decode(Path(node.home, GENESIS_NAME).read_bytes())
    genesis = parse_genesis(msgspec.json.encode(document["app_state"]))
    return {parse_address(entry.address): Account(balance=entry.balance) for entry in genesis.accounts}


def differing(histories: Sequence[History]) -> list[int]:
    """Heights at which two nodes that have them differ in block, app hash or outcome of a transaction, or that no node
    has though a later one is had."""
    found = []
    last = max((max(history, default=0) for history in histories), default=0)
    for height in range(1, last + 1):
        answers = [history[height] for history in histories if height in history]
        if len({(b.hash, b.app_hash, tuple(tx.code for tx in b.txs)) for b in answers}) != 1 or not answers[0].app_hash:
            found.append(height)
    return found


def longest_gap_s(history: History) -> float:
    """Longest time between two blocks in a row, by their headers."""
    times = [history[height].time_s for height in sorted(history)]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


async def _read_block(session: aiohttp.ClientSession, node: NodeState, height: int) -> Block:
    at = {"height": str(height)}
    answer = await engine_call(session, node, "block", at)
    results = await engine_call(session, node, "block_results", at)
    header = answer["block"]["header"]
    txs = [base64.b64decode(text) for text in answer["block"]["data"].get("txs") or ()]
    outcomes: list[dict[str, Any]] = results.get("txs_results") or []
    return Block(
        height=height,
        hash=str(answer["block_id"]["hash"]),
        app_hash=str(results["app_hash"]),
        time_s=datetime.fromisoformat(header["time"]).timestamp(),
        txs=tuple(
            BlockTx(data=tx, code=int(outcome.get("code") or 0), charged=int(outcome.get("gas_used") or 0) > 0)
            for tx, outcome in zip(txs, outcomes, strict=True)
        ),
    )
