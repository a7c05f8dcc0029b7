"""The running network that a load goes to."""

from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from abci_app.params import Params
from localnet.health import look_at_all
from localnet.load.errors import LoadError
from localnet.load.usage import Measured
from localnet.state import NetworkState, NodeState, load_state
from node.client import Client
from node.keys import load_key
from primitives.keys import PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A network whose nodes all run."""

    chain_id: str
    params: Params
    faucet: PrivateKey
    """Of the account that pays for everything."""
    nodes: tuple[NodeState, ...]

    @property
    def urls(self) -> list[str]:
        """CometBFT's RPC of each node."""
        return [node.engine_url for node in self.nodes]

    def client(self, key: PrivateKey, index: int = 0, *, session: aiohttp.ClientSession | None = None) -> Client:
        """A client of node `index` mod their number, to be used as an async context manager."""
        return Client(self.nodes[index % len(self.nodes)].url, key=key, chain_id=self.chain_id, session=session)

    def measured(self) -> Measured:
        """The processes as they are now.

        Raises: LoadError.
        """
        return Measured(apps=self._processes("app"), engines=self._processes("engine"))

    def _processes(self, name: str) -> list[psutil.Process]:
        return [_process(node, name) for node in self.nodes]


async def find_target(home: Path) -> Target:
    """The network in the folder.

    Raises: StateError when the folder holds none, LoadError when it does not run or a node is not well, NodeError.
    """
    state = load_state(home)
    if state.owner.find() is None:
        raise LoadError(
            f"the local network in {home} is not running; start it with "
            f"`outerstep localnet up --detach --nodes {len(state.nodes)} --home {home}`"
        )
    await _check_health(state)
    faucet = load_key(Path(state.faucet))
    async with Client(state.nodes[0].url, chain_id=state.chain_id) as client:
        params = await client.params()
    return Target(chain_id=state.chain_id, params=params, faucet=faucet, nodes=state.nodes)


async def _check_health(state: NetworkState) -> None:
    """Raises: LoadError."""
    for node, health in zip(state.nodes, await look_at_all(state.nodes), strict=True):
        if not health.healthy or health.catching_up:
            reason = health.problem or "it is catching up"
            raise LoadError(f"{node.name} is not ready ({reason}); `outerstep localnet status` shows when all are")


def _process(node: NodeState, name: str) -> psutil.Process:
    """Raises: LoadError."""
    file = Path(node.home) / f"run/{name}.pid"
    try:
        return psutil.Process(int(file.read_text()))
    except (OSError, ValueError, psutil.NoSuchProcess) as error:
        raise LoadError(
            f"{file} names no running process ({error}); is {node.name} restarting? See `outerstep localnet status`"
        ) from error
