"""A local network: N nodes as real processes, started together, watched, and stopped whatever happens.

async with Localnet(home, nodes=4) as net:
    async with net.client(0) as client:
        ...
    net.kill(1, "engine")
    await net.wait_for_height(20)
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

import msgspec
import psutil

from abci_app.params import Params
from localnet.health import NodeHealth, look_at_all, wait_healthy
from localnet.homes import HomesError, create_homes, existing_network
from localnet.logs import last_lines, log_files
from localnet.ports import claim
from localnet.processes import (
    ProcessName,
    descendants,
    kill,
    kill_tree,
    pause,
    resume,
    spawn,
    stop_trees,
    uninterrupted,
)
from localnet.state import NetworkState, NodeState, StateError, save_state
from node.client import Client
from node.keys import load_key
from node.reset import reset_chain
from primitives.keys import PrivateKey

NodeProcess = Literal["app", "engine", "services", "node"]
"""What can be killed or paused: one of the three processes of a node, or the whole node with its supervisor."""
COMMAND_OF: Final[dict[str, str]] = {"app": "abci_app", "engine": "cometbft", "services": "node.services"}
START_TIMEOUT_S: Final = 90.0
FIRST_HEIGHT: Final = 2
"""A network is up once every node has this block: then blocks are being agreed on, not only genesis."""


class StartFailed(Exception):
    """The network did not come up; the text says which node and shows its last words."""


class Localnet:
    """N nodes under one folder. Entering starts them and waits until all are healthy; leaving stops everything."""

    def __init__(
        self,
        home: Path,
        *,
        nodes: int = 4,
        base_port: int | None = None,
        params: Params | None = None,
        say: Callable[[str], None] = lambda _: None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`base_port` None: the one that `home` was made for, else a free range."""
        self.home = home.absolute()
        self._wanted = nodes
        self._base_port = base_port
        self._params = params
        self._say = say
        self._start_timeout_s = start_timeout_s
        self._state: NetworkState | None = None
        self._supervisors: dict[int, psutil.Popen] = {}
        self._held = contextlib.ExitStack()

    # --- the whole network ----------------------------------------------------------------------------------------
    async def __aenter__(self) -> "Localnet":
        """Raises: PortError, HomesError, StartFailed; nothing is left running then."""
        try:
            self._prepare()
            self._say(f"starting {len(self.nodes)} nodes from port {self.state.base_port} in {self.home}")
            for node in self.nodes:
                self._spawn(node.index)
            self._save(ready=False)
            await self._wait_until_up()
            self._save(ready=True)
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop every process of every node; harmless when nothing runs."""
        with uninterrupted():
            for index in self._supervisors:
                self.resume(index, "node")
            stop_trees(list(self._supervisors.values()))
            self._supervisors.clear()
            if self._state is not None:
                self._save(ready=False)
            self._held.close()

    @property
    def state(self) -> NetworkState:
        if self._state is None:
            raise StateError("the local network has not been started")
        return self._state

    @property
    def nodes(self) -> tuple[NodeState, ...]:
        return self.state.nodes

    @property
    def faucet(self) -> PrivateKey:
        """The key of the account that genesis gave the free tokens to."""
        return load_key(Path(self.state.faucet))

    def client(self, index: int = 0, key: PrivateKey | None = None) -> Client:
        """A client of node `index` that signs with `key`, to be used as an async context manager."""
        return Client(self.nodes[index].url, key=key, chain_id=self.state.chain_id)

    # --- single nodes ---------------------------------------------------------------------------------------------
    def kill(self, index: int, process: NodeProcess) -> None:
        """SIGKILL one process of a node, or the whole node at once; harmless when it is not running."""
        supervisor = self._supervisors.get(index)
        if supervisor is None:
            return
        if process == "node":
            kill_tree(supervisor)
            del self._supervisors[index]
            return
        for child in self.processes(index, process):
            kill(child)

    def pause(self, index: int, process: NodeProcess) -> None:
        """SIGSTOP one process of a node, or all of them; harmless when it is not running."""
        for found in self.processes(index, process):
            pause(found)

    def resume(self, index: int, process: NodeProcess) -> None:
        """SIGCONT what `pause` stopped; harmless when it is not running, or not paused."""
        for found in self.processes(index, process):
            resume(found)

    async def stop_node(self, index: int) -> None:
        """Stop a node in order (SIGTERM to its supervisor)."""
        supervisor = self._supervisors.pop(index, None)
        if supervisor is not None:
            stop_trees([supervisor])
            self._save(ready=True)

    async def wipe_node(self, index: int) -> None:
        """Stop a node and remove its copy of the chain, as `outerstep node reset` does: keys, signing state, rows and
        files stay.

        Raises: node.errors.SetupError when something cannot be removed.
        """
        await self.stop_node(index)
        reset_chain(Path(self.nodes[index].home))

    async def start_node(self, index: int, *, wait: bool = True) -> None:
        """Start a node that was stopped or killed or has ended; with `wait` until it is healthy. Nothing when it runs
        already."""
        if not self.is_running(index):
            self._supervisors.pop(index, None)
        if index not in self._supervisors:
            self._spawn(index)
            self._save(ready=True)
        if wait:
            await wait_healthy([self.nodes[index]], height=1, timeout_s=self._start_timeout_s, check=self.check_alive)

    def processes(self, index: int, process: NodeProcess) -> list[psutil.Process]:
        """The living processes that `process` means, the supervisor first."""
        supervisor = self._supervisors.get(index)
        if supervisor is None:
            return []
        below = descendants(supervisor)
        return [supervisor, *below] if process == "node" else [c for c in below if _runs(c, COMMAND_OF[process])]

    def is_running(self, index: int) -> bool:
        """Whether the node's supervisor lives; one that gave up does not."""
        supervisor = self._supervisors.get(index)
        return supervisor is not None and supervisor.poll() is None

    async def wait_for_height(
        self, height: int, *, nodes: Sequence[int] | None = None, timeout_s: float = 60.0
    ) -> list[NodeHealth]:
        """Wait until the engines of `nodes` (default: all that run) have block `height` and their services answer.

        Raises: TimeoutError that names who is behind; StartFailed when a supervisor has ended.
        """
        chosen = [self.nodes[i] for i in (sorted(self._supervisors) if nodes is None else nodes)]
        return await wait_healthy(chosen, height=height, timeout_s=timeout_s, check=self.check_alive)

    async def health(self) -> list[NodeHealth]:
        return await look_at_all(self.nodes)

    # --- inside ---------------------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        known = existing_network(self.home)
        base_port = self._base_port if known is None else self._check_same(known)
        chosen = self._held.enter_context(claim(base_port, self._wanted))
        if known is None:
            known = create_homes(self.home, nodes=self._wanted, base_port=chosen, params=self._params)
        self._state = msgspec.structs.replace(known, owner=ProcessName.of(os.getpid()), ready=False)

    def _check_same(self, known: NetworkState) -> int:
        """The base port of the network that `home` holds already; refuses to bend it into another one."""
        if known.owner.find() is not None and known.owner.pid != os.getpid():
            raise HomesError(
                f"a local network is running in {self.home} already (process {known.owner.pid}); stop it with "
                "`outerstep localnet down`, or give this one another --home"
            )
        if len(known.nodes) != self._wanted or self._base_port not in (None, known.base_port):
            raise HomesError(
                f"{self.home} holds a network of {len(known.nodes)} nodes on base port {known.base_port}; start it "
                "with the same numbers, give another --home, or remove the folder"
            )
        return known.base_port

    def _spawn(self, index: int) -> None:
        log = Path(self.nodes[index].home, "logs", "supervisor.log")
        self._supervisors[index] = spawn(self._command(index), log)

    def _command(self, index: int) -> list[str]:
        """What starts node `index`; a network whose nodes live elsewhere puts its own words in front."""
        return [sys.executable, "-m", "node.supervisor", "--home", self.nodes[index].home]

    async def _wait_until_up(self) -> None:
        try:
            found = await wait_healthy(
                self.nodes, height=FIRST_HEIGHT, timeout_s=self._start_timeout_s, check=self.check_alive
            )
        except TimeoutError as error:
            raise StartFailed(f"{error}\n{self._last_words()}") from error
        self._say(f"all {len(found)} nodes are healthy at height {min(health.height for health in found)}")

    def check_alive(self) -> None:
        """Raises: StartFailed when the supervisor of a started node has ended by itself."""
        for index, supervisor in self._supervisors.items():
            if supervisor.poll() is not None:
                raise StartFailed(
                    f"{self.nodes[index].name} ended with code {supervisor.returncode}\n{self._last_words([index])}"
                )

    def _last_words(self, indices: Sequence[int] | None = None) -> str:
        lines: list[str] = []
        for index in range(len(self.nodes)) if indices is None else indices:
            for path in log_files(self.nodes[index]):
                lines += [f"  {self.nodes[index].name}/{path.stem}: {line}" for line in last_lines(path, 3)]
        return "\n".join(lines)

    def _save(self, *, ready: bool) -> None:
        nodes = []
        for node in self.nodes:
            supervisor = self._supervisors.get(node.index)
            nodes.append(
                msgspec.structs.replace(node, supervisor=ProcessName.of(supervisor.pid) if supervisor else None)
            )
        self._state = msgspec.structs.replace(self.state, nodes=tuple(nodes), ready=ready)
        save_state(self.home, self._state)


def _runs(process: psutil.Process, name: str) -> bool:
    """Whether the process's command line names the program or module `name`."""
    try:
        words = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return any(word == name or Path(word).name == name for word in words[:4])
