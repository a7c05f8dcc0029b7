"""How a node is doing, asked from outside through its own ports."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from localnet.state import NodeState

POLL_S: Final = 0.25
ANSWER_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """One look at one node."""

    index: int
    healthy: bool
    """Its services answer /health with 200 and its engine answers."""
    height: int = 0
    """Newest block that its engine has; 0 when it does not answer."""
    app_hash: str = ""
    """Hex, as the engine reports it beside that block."""
    peers: int = 0
    catching_up: bool = False
    problem: str = ""
    """Why it is not healthy, in words."""


async def look_at(session: aiohttp.ClientSession, node: NodeState) -> NodeHealth:
    """Ask the node's services and its engine; never raises for a node that does not answer."""
    try:
        status, peers = (
            await _engine(session, node.engine_url, "status"),
            await _engine(session, node.engine_url, "net_info"),
        )
        sync = status["sync_info"]
        height, app_hash = int(sync["latest_block_height"]), str(sync["latest_app_hash"]).lower()
        found = NodeHealth(node.index, True, height, app_hash, int(peers["n_peers"]), bool(sync["catching_up"]))
    except (aiohttp.ClientError, TimeoutError, KeyError, TypeError, ValueError) as error:
        return NodeHealth(node.index, False, problem=f"the engine does not answer ({type(error).__name__})")
    problem = await _services_problem(session, node)
    return (
        found
        if not problem
        else NodeHealth(node.index, False, found.height, found.app_hash, found.peers, found.catching_up, problem)
    )


async def look_at_all(nodes: Sequence[NodeState]) -> list[NodeHealth]:
    """All nodes at once, in their order."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        return list(await asyncio.gather(*(look_at(session, node) for node in nodes)))


async def wait_healthy(
    nodes: Sequence[NodeState], *, height: int, timeout_s: float, check: Callable[[], None]
) -> list[NodeHealth]:
    """Wait until all nodes are healthy at `height` or above. `check` is called between looks and may raise.

    Raises: TimeoutError that names the nodes that are not there yet and why.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        check()
        found = await look_at_all(nodes)
        late = [health for health in found if not health.healthy or health.height < height]
        if not late:
            return found
        if loop.time() > deadline:
            reasons = "; ".join(f"node{h.index}: {h.problem or f'at height {h.height}'}" for h in late)
            raise TimeoutError(f"not all nodes reached height {height} within {timeout_s:.0f} s: {reasons}")
        await asyncio.sleep(POLL_S)


async def _engine(session: aiohttp.ClientSession, url: str, method: str) -> dict[str, Any]:
    async with session.get(f"{url}/{method}") as answer:
        result: dict[str, Any] = (await answer.json())["result"]
        return result


async def _services_problem(session: aiohttp.ClientSession, node: NodeState) -> str:
    try:
        async with session.get(f"{node.url}/health") as answer:
            if answer.status == 200:
                return ""
            return str((await answer.json())["status"])
    except (aiohttp.ClientError, TimeoutError, KeyError, TypeError, ValueError) as error:
        return f"the services do not answer ({type(error).__name__})"
