"""How each kind of fault is done to a node, one at a time, and how it is seen that the node has got over it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localnet.chaos.disk import SmallDisk
from localnet.chaos.plan import STATE_SYNC, Fault
from localnet.chaos.report import FaultRecord
from localnet.chaos.watch import Watch
from localnet.network import Localnet, NodeProcess, StartFailed
from node.chain import Engine
from node.state_sync import arm, disarm

RECOVERY_S: Final = 120.0
"""How long a node may take to be healthy and at the newest block again."""
DISK_FAILS_S: Final = 30.0
"""How long a node may go on with a full disk before the fault counts as one that did nothing."""
REFILL_S: Final = 0.5
SNAPSHOT_S: Final = 120.0
"""How long it may take until the first snapshot is there."""
POLL_S: Final = 5.0
NEW_BLOCKS: Final = 2
"""The node must take part in this many blocks after the fault."""
STARTS: Final = {"kill_node": 1, "block_sync": 1, STATE_SYNC: 1}
"""How often an operator may have to start the node; with every other kind its supervisor must do without."""


class FaultFailed(Exception):
    """A fault did not do what it should, or its node did not get over it; the text says which."""


@dataclass(slots=True)
class Scene:
    """What the faults work on."""

    net: Localnet
    watch: Watch
    disk: SmallDisk | None
    """The disk of the node that `disk_full` comes to; None when there is none."""
    began_s: float
    """By time.monotonic()."""


Injection = Callable[[Scene, Fault], Awaitable[str]]
"""Does it, and says what it did. The node may be left broken, as long as it or a start mends it."""


async def inject(scene: Scene, fault: Fault) -> FaultRecord:
    """Disturb the node, help it as an operator would, wait until it is well.

    Raises: FaultFailed; StartFailed when a node ended that was not disturbed.
    """
    net, watch, started_s, height = scene.net, scene.watch, time.monotonic(), scene.watch.height
    watch.disturb(fault.node)
    note = await INJECTIONS[fault.kind](scene, fault)
    await _recover(net, fault)
    if fault.kind == STATE_SYNC:
        note += f"; its first block is now {await _first_block(net, fault.node)}"
    watch.calm(fault.node)
    return FaultRecord(
        kind=fault.kind,
        node=fault.node,
        at_s=round(started_s - scene.began_s, 1),
        height=height,
        lasted_s=round(time.monotonic() - started_s, 1),
        note=note,
    )


async def _recover(net: Localnet, fault: Fault) -> None:
    """Until the node is healthy and takes part in new blocks, started again where that is an operator's part.

    Raises: FaultFailed.
    """
    deadline, starts = time.monotonic() + RECOVERY_S, STARTS.get(fault.kind, 0)
    height = max(health.height for health in await net.health()) + NEW_BLOCKS
    while True:
        if not net.is_running(fault.node):
            if not starts:
                raise FaultFailed(f"after {fault.kind} the supervisor of node{fault.node} gave up")
            starts -= 1
            await net.start_node(fault.node, wait=False)
        try:
            await net.wait_for_height(height, nodes=[fault.node], timeout_s=POLL_S)
        except TimeoutError as error:
            if time.monotonic() > deadline:
                raise FaultFailed(f"{RECOVERY_S:.0f} s after {fault.kind}: {error}") from error
        except StartFailed:
            if net.is_running(fault.node):
                raise
        else:
            return


async def _kill(scene: Scene, fault: Fault) -> str:
    process = _process_of(fault)
    victims = [victim.pid for victim in scene.net.processes(fault.node, process)]
    if not victims:
        raise FaultFailed(f"node{fault.node} runs no {process} that could be killed")
    scene.net.kill(fault.node, process)
    await asyncio.sleep(fault.hold_s)
    down = f", started again after {fault.hold_s:.1f} s" if process == "node" else ""
    return f"killed {len(victims)} process{'es' if len(victims) > 1 else ''}{down}"


async def _pause(scene: Scene, fault: Fault) -> str:
    process = _process_of(fault)
    if not scene.net.processes(fault.node, process):
        raise FaultFailed(f"node{fault.node} runs no {process} that could be paused")
    scene.net.pause(fault.node, process)
    try:
        await asyncio.sleep(fault.hold_s)
    finally:
        scene.net.resume(fault.node, process)
    return f"paused for {fault.hold_s:.1f} s"


async def _fill_disk(scene: Scene, fault: Fault) -> str:
    """Fill the disk until the node's chain stops, keep it full for a while, free it; the node goes on by itself."""
    disk, net, began = scene.disk, scene.net, time.monotonic()
    if disk is None:
        raise FaultFailed(f"node{fault.node} has no small disk")
    before = _chain_processes(net, fault.node)
    stopped_s: float | None = None
    try:
        while stopped_s is None or time.monotonic() - began < stopped_s + fault.hold_s:
            size = await asyncio.to_thread(disk.fill)
            await asyncio.sleep(REFILL_S)
            if stopped_s is None and _chain_processes(net, fault.node) != before:
                stopped_s = time.monotonic() - began
            if stopped_s is None and time.monotonic() - began > DISK_FAILS_S:
                raise FaultFailed(f"the chain of node{fault.node} ran on for {DISK_FAILS_S:.0f} s with a full disk")
    finally:
        disk.free()
    return f"{size / 2**20:.0f} MiB filled its disk; its chain stopped after {stopped_s:.1f} s, and went on by itself"


async def _rejoin_by_blocks(scene: Scene, fault: Fault) -> str:
    height = scene.watch.heights[fault.node]
    await scene.net.wipe_node(fault.node)
    disarm(Path(scene.net.nodes[fault.node].home))
    return f"wiped at height {height}, fetched all blocks again"


async def _rejoin_by_state(scene: Scene, fault: Fault) -> str:
    """Wiped once another node has a snapshot to give."""
    net, height = scene.net, scene.watch.heights[fault.node]
    others = [node for node in net.nodes if node.index != fault.node]
    async with asyncio.timeout(SNAPSHOT_S):
        while not any(_has_snapshot(Path(node.home)) for node in others):
            await asyncio.sleep(REFILL_S)
    await net.wipe_node(fault.node)
    await arm(Path(net.nodes[fault.node].home), [node.url for node in others])
    return f"wiped at height {height}, restored a snapshot"


def _has_snapshot(home: Path) -> bool:
    folder = home / "data/snapshots"
    return folder.is_dir() and any(path.name.isdigit() for path in folder.iterdir())


async def _first_block(net: Localnet, index: int) -> int:
    """The lowest block that the engine of a node has.

    Raises: FaultFailed when that is the first of the chain: then no snapshot was restored.
    """
    engine = Engine(net.nodes[index].engine_url)
    try:
        first = await engine.first_height()
    finally:
        await engine.close()
    if first <= 1:
        raise FaultFailed(f"node{index} was to restore a snapshot, and has fetched all blocks")
    return first


def _process_of(fault: Fault) -> NodeProcess:
    return PROCESS_OF[fault.kind]


def _chain_processes(net: Localnet, index: int) -> set[int]:
    return {p.pid for name in CHAIN_PROCESSES for p in net.processes(index, name)}


CHAIN_PROCESSES: Final[tuple[NodeProcess, ...]] = ("app", "engine")
PROCESS_OF: Final[Mapping[str, NodeProcess]] = {
    "kill_engine": "engine",
    "kill_app": "app",
    "kill_services": "services",
    "kill_node": "node",
    "pause_engine": "engine",
    "pause_app": "app",
    "pause_node": "node",
}
INJECTIONS: Final[Mapping[str, Injection]] = {
    **{kind: _kill if kind.startswith("kill") else _pause for kind in PROCESS_OF},
    "disk_full": _fill_disk,
    "block_sync": _rejoin_by_blocks,
    STATE_SYNC: _rejoin_by_state,
}
