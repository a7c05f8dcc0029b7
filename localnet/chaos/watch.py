"""Looks at every node four times a second: how high it is, and for how long no block has come."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp

from localnet.state import NodeState

POLL_S: Final = 0.25
ANSWER_TIMEOUT_S: Final = 2.0


class Watch:
    """Heights, and the longest stall that a node which was not disturbed has seen. `clock` gives seconds."""

    def __init__(self, num_nodes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._disturbed = set[int]()
        self.heights = [0] * num_nodes
        self._grew_s = [clock()] * num_nodes
        self.longest_stall_s = 0.0
        self.stalled_at = 0
        """The height behind which the longest stall was seen."""

    @property
    def height(self) -> int:
        """The highest of those that are not disturbed."""
        return max(height for index, height in enumerate(self.heights) if index not in self._disturbed)

    def disturb(self, index: int) -> None:
        """From now on, the node's own silence does not count."""
        self._disturbed.add(index)

    def calm(self, index: int) -> None:
        """The node is as good as the others again."""
        self._disturbed.discard(index)
        self._grew_s[index] = self._clock()

    def saw(self, index: int, height: int | None) -> None:
        """A look at a node; None when it did not answer."""
        now = self._clock()
        if index not in self._disturbed and now - self._grew_s[index] > self.longest_stall_s:
            self.longest_stall_s = now - self._grew_s[index]
            self.stalled_at = self.heights[index]
        if height is not None and height > self.heights[index]:
            self.heights[index] = height
            self._grew_s[index] = now

    async def run(self, nodes: Sequence[NodeState]) -> None:
        """Look for ever."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as tasks:
            for node in nodes:
                tasks.create_task(self._follow(session, node))

    async def _follow(self, session: aiohttp.ClientSession, node: NodeState) -> None:
        while True:
            self.saw(node.index, await _height(session, node.engine_url))
            await asyncio.sleep(POLL_S)


async def _height(session: aiohttp.ClientSession, url: str) -> int | None:
    try:
        async with session.get(f"{url}/status") as answer:
            body: dict[str, Any] = await answer.json()
            return int(body["result"]["sync_info"]["latest_block_height"])
    except (aiohttp.ClientError, OSError, TimeoutError, KeyError, TypeError, ValueError):
        return None
