"""From what is trusted to any higher block: one step where the rules allow it, else through blocks in between."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from node.errors import NodeUnreachable
from node.light.blocks import LightBlock
from node.light.errors import (
    BlockMissing,
    Divergence,
    InvalidBlock,
    LightError,
    NotEnoughTrust,
    StaleAnswer,
    TrustError,
)
from node.light.hashes import NS_PER_S, header_hash
from node.light.source import Source
from node.light.store import TrustedStore
from node.light.verify import Trusted, TrustRules, check_block, check_next, check_trusted

MAX_BLOCKS: Final = 1000
"""Most blocks fetched on the way to one height; honest chains take a few."""
WITNESS_WAIT_S: Final = 5.0
"""How long another node may take to get the block."""
RETRY_S: Final = 0.25
MAX_AGE_S: Final = 60.0
"""Nodes make a block at least every second; one this old is not the newest."""


class Verified(msgspec.Struct, frozen=True):
    """A block that more than 2/3 of its validators signed, on a chain that leads back to what is trusted."""

    chain_id: str
    height: int
    block_hash: bytes
    app_hash: bytes
    """Of the state after the block below."""
    time_ns: int
    signed_power: int
    total_power: int
    num_witnesses: int
    """Other nodes that have the same block."""


class LightClient:
    """Verified headers of one chain from untrusted nodes.

    The first of `sources` that answers is asked, the others are its witnesses. Trust starts from the highest of
    `trusted`, of the block `pinned` as (height, hash), and of those in `store`, that is not above the height asked for.
    """

    def __init__(
        self,
        chain_id: str,
        sources: Sequence[Source],
        *,
        rules: TrustRules,
        trusted: Sequence[Trusted] = (),
        pinned: tuple[int, bytes] | None = None,
        store: TrustedStore | None = None,
        max_age_s: float = MAX_AGE_S,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.chain_id = chain_id
        self._sources = list(sources)
        self._rules = rules
        self._pinned = pinned
        self._store = store
        self._max_age_s = max_age_s
        self._now_ns = now_ns
        self._trusted = {item.height: item for item in trusted}
        self._blocks: dict[int, LightBlock] = {}
        for block in store.blocks if store is not None else ():
            self._remember(block)
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        for source in self._sources:
            await source.close()

    async def verify(self, height: int) -> Verified:
        """The block of `height`, verified, agreed on by every other node that answers, and remembered.

        Raises: LightError, NodeUnreachable when no node answers, OSError when the store cannot be written.
        """
        async with self._lock:
            await self._trust_pinned()
            block = self._blocks.get(height) or await self._reach(height)
            num_witnesses = await self._ask_witnesses(block)
            self._remember(block)
            if self._store is not None:
                self._store.add(block)
        return self._verified(block, num_witnesses)

    def check_newest(self, verified: Verified) -> None:
        """Raises: StaleAnswer when the block is too old to be the newest of a chain that goes on."""
        age_s = (self._now_ns() - verified.time_ns) / NS_PER_S
        if age_s > self._max_age_s:
            raise StaleAnswer(self._sources[0].url, verified.height, age_s, self._max_age_s)

    async def _reach(self, height: int) -> LightBlock:
        trusted = self._start(height)
        check_trusted(trusted, self._rules, self._now_ns())
        waiting = [await self._fetch(height)]
        for _ in range(MAX_BLOCKS):
            block = waiting[-1]
            try:
                check_next(trusted, block, self.chain_id, self._rules, self._now_ns())
            except NotEnoughTrust:
                waiting.append(await self._fetch((trusted.height + block.height) // 2))
                continue
            trusted = Trusted.block(waiting.pop())
            if not waiting:
                return block
        raise LightError(f"block {height} is not reached within {MAX_BLOCKS} blocks; give a newer trusted one")

    def _start(self, height: int) -> Trusted:
        below = [trusted for trusted in self._trusted.values() if trusted.height <= height]
        if below:
            return max(below, key=lambda trusted: trusted.height)
        if self._trusted:
            lowest = min(self._trusted)
            raise TrustError(f"block {height} is below all that is trusted (from height {lowest} on)")
        raise TrustError(
            "nothing is trusted yet: give the network's genesis with --genesis FILE, or the height and hash of a "
            "recent block, from someone you trust, with --trust-height and --trust-hash"
        )

    async def _trust_pinned(self) -> None:
        if self._pinned is None:
            return
        height, hash_ = self._pinned
        block = self._blocks.get(height) or await self._fetch(height)
        check_block(block, self.chain_id)
        if header_hash(block.header) != hash_:
            raise TrustError(
                f"block {height} has the hash {header_hash(block.header).hex()}, not the trusted {hash_.hex()}: the "
                "hash was given wrongly, or the node (or what was verified before) is of another chain"
            )
        self._remember(block)
        self._pinned = None

    async def _fetch(self, height: int) -> LightBlock:
        """From the first node that has it; that one is the first from then on."""
        problem: LightError | NodeUnreachable | None = None
        for source in list(self._sources):
            try:
                block = await source.light_block(height)
            except (NodeUnreachable, BlockMissing) as error:
                problem = problem or error
                continue
            self._sources.remove(source)
            self._sources.insert(0, source)
            return block
        raise problem or TrustError("a light client needs at least one node to ask")

    async def _ask_witnesses(self, block: LightBlock) -> int:
        """How many other nodes have the same block; those that do not answer or are behind do not count.

        Raises: Divergence.
        """
        found = await asyncio.gather(*(self._witness(source, block.height) for source in self._sources[1:]))
        ours = (self._sources[0].url, header_hash(block.header))
        for source, theirs in zip(self._sources[1:], found, strict=True):
            if theirs is not None and header_hash(theirs.header) != ours[1]:
                note = self._standing(theirs)
                raise Divergence(block.height, ours, (source.url, header_hash(theirs.header)), note)
        return sum(theirs is not None for theirs in found)

    async def _witness(self, source: Source, height: int) -> LightBlock | None:
        deadline = time.monotonic() + WITNESS_WAIT_S
        while True:
            try:
                return await source.light_block(height)
            except NodeUnreachable:
                return None
            except BlockMissing:
                if time.monotonic() > deadline:
                    return None
                await asyncio.sleep(RETRY_S)

    def _standing(self, block: LightBlock) -> str:
        """Whether the second of two blocks of one height is signed too: then 1/3 of the validators signed twice."""
        try:
            check_block(block, self.chain_id)
        except InvalidBlock as error:
            return f"which is not even signed by its own validators ({error})"
        return "and both are signed by more than 2/3 of their validators"

    def _remember(self, block: LightBlock) -> None:
        self._blocks[block.height] = block
        self._trusted[block.height] = Trusted.block(block)

    def _verified(self, block: LightBlock, num_witnesses: int) -> Verified:
        header = block.header
        return Verified(
            chain_id=self.chain_id,
            height=header.height,
            block_hash=header_hash(header),
            app_hash=header.app_hash,
            time_ns=header.time_ns,
            signed_power=check_block(block, self.chain_id),
            total_power=sum(validator.power for validator in block.validators),
            num_witnesses=num_witnesses,
        )
