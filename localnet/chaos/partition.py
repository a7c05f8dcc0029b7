"""The second network: four nodes in network namespaces of their own, cut apart and healed.

Node i has the address 10.77.0.(i+1) on a bridge that this process sits on too, so that it sees all of them throughout.
Every link is shaped to 50 Mbit/s each way (`tc tbf`).
A cut is a blackhole route on both sides. Everything lies in the namespaces of this run and goes with it (`isolation`).
"""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from localnet.homes import create_homes_for
from localnet.network import Localnet
from localnet.ports import claim
from localnet.processes import ProcessName
from localnet.state import NetworkState, NodeState, save_state
from node.checks import check_genesis_file
from node.config import load_config, save_config
from node.init import read_identity
from primitives.keys import format_address

BRIDGE: Final = "outerstep"
OUR_ADDRESS: Final = "10.77.0.254/24"
RATE_MBIT: Final = 50
"""Of each link, each way: what people have at home."""
LINK_BURST: Final = "128kb"
LINK_LATENCY: Final = "400ms"
"""How long a packet may wait in the queue of a link before it is dropped."""
COMMAND_S: Final = 10.0
SETTLE_S: Final = 3.0
"""After a cut, until what was under way has arrived or is lost."""
CUT_S: Final = 12.0
HEAL_S: Final = 90.0
MIN_BLOCKS: Final = 3
"""What the larger part must do while it is cut off."""
NEW_BLOCKS: Final = 2


class PartitionFailed(Exception):
    """The network cannot be laid out, or did not do as it should; the text says which."""


class NamespaceNet(Localnet):
    """A local network whose nodes each run in the network namespace `node<i>`."""

    def _command(self, index: int) -> list[str]:
        return ["ip", "netns", "exec", f"node{index}", *super()._command(index)]


def address_of(index: int) -> str:
    return f"10.77.0.{index + 1}"


def lay_out(nodes: int, *, rate_mbit: int = RATE_MBIT) -> None:
    """Namespaces, the bridge, and a link of `rate_mbit` Mbit/s each way to each node, inside namespaces of our own.

    Raises: PartitionFailed.
    """
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "addr", "add", OUR_ADDRESS, "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    for index in range(nodes):
        name, outer = f"node{index}", f"to-node{index}"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", outer, "master", BRIDGE, "up")
        _inside(index, "addr", "add", f"{address_of(index)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _inside(index, "link", "set", device, "up")
        shape = ["root", "tbf", "rate", f"{rate_mbit}mbit", "burst", LINK_BURST, "latency", LINK_LATENCY]
        _run("tc", "qdisc", "add", "dev", outer, *shape)
        _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)


def make_network(home: Path, nodes: int) -> Path:
    """Homes for nodes at their addresses, with engines that answer there too, so that they can be watched from here."""
    with claim(None, nodes) as base_port:
        folders = create_homes_for(home, [address_of(index) for index in range(nodes)], base_port)
        states = []
        for index, folder in enumerate(folders):
            config, engine = load_config(folder), f"{address_of(index)}:{base_port + 1}"
            network = replace(config.network, engine_rpc=engine, engine_metrics="")
            save_config(folder, replace(config, network=network))
            states.append(
                NodeState(
                    index=index,
                    name=folder.name,
                    home=str(folder),
                    operator=format_address(read_identity(folder).operator),
                    url=config.network.public_url,
                    engine_url=f"http://{engine}",
                    p2p_port=base_port,
                )
            )
        state = NetworkState(
            chain_id=check_genesis_file(folders[0]),
            base_port=base_port,
            owner=ProcessName(pid=0, started=0.0),
            ready=False,
            faucet=str(home / "faucet.json"),
            nodes=tuple(states),
        )
        save_state(home, state)
    return home


async def cut_and_heal(net: Localnet, smaller: Sequence[int]) -> str:
    """Cut `smaller` off the others, look what both parts do, heal, and wait until all go on together.

    A part with more than two thirds of the validators must make blocks, any other must make none.
    Returns what happened, in words. Raises: PartitionFailed.
    """
    larger = [node.index for node in net.nodes if node.index not in smaller]
    _route("add", smaller, larger)
    try:
        await asyncio.sleep(SETTLE_S)
        before = await _heights(net)
        await asyncio.sleep(CUT_S)
        after = await _heights(net)
    finally:
        _route("del", smaller, larger)
    grown = [later - earlier for earlier, later in zip(before, after, strict=True)]
    for part in (larger, smaller):
        alone = 3 * len(part) <= 2 * len(net.nodes)
        if alone and any(grown[index] for index in part):
            raise PartitionFailed(f"nodes {part} of {len(net.nodes)} made blocks on their own: {grown}")
        if not alone and any(grown[index] < MIN_BLOCKS for index in part):
            raise PartitionFailed(f"nodes {part} of {len(net.nodes)} made no blocks: {grown}")
    try:
        await net.wait_for_height(max(after) + NEW_BLOCKS, timeout_s=HEAL_S)
    except TimeoutError as error:
        raise PartitionFailed(f"after healing: {error}") from error
    return (
        f"nodes {larger} | {list(smaller)} cut for {SETTLE_S + CUT_S:.0f} s from height {max(before)}; blocks: {grown}"
    )


async def _heights(net: Localnet) -> list[int]:
    found = await net.health()
    if not all(health.height for health in found):
        raise PartitionFailed(f"a node does not answer: {[health.problem for health in found]}")
    return [health.height for health in found]


def _route(verb: str, smaller: Sequence[int], larger: Sequence[int]) -> None:
    for here, there in ((smaller, larger), (larger, smaller)):
        for index in here:
            for other in there:
                _inside(index, "route", verb, "blackhole", f"{address_of(other)}/32")


def _inside(index: int, *words: str) -> None:
    _run("ip", "-n", f"node{index}", *words)


def _run(*command: str) -> None:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PartitionFailed(f"{' '.join(command)}: {error}") from error
    if answer.returncode:
        raise PartitionFailed(f"{' '.join(command)}: {(answer.stderr or answer.stdout).strip()}")
