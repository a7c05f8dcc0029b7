"""Which fault comes when: a seeded, endless sequence in which every kind comes once before any comes again.

The same seed and kinds give the same faults in the same order at the same nodes; how far a run gets in it depends on
its time and on the machine.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

DISK_FULL: Final = "disk_full"
STATE_SYNC: Final = "state_sync"
SINGLE_KINDS: Final = (
    "kill_engine",
    "kill_app",
    "kill_services",
    "kill_node",
    "pause_engine",
    "pause_app",
    "pause_node",
    DISK_FULL,
    "block_sync",
    STATE_SYNC,
)
"""One node at a time, while the other three go on."""
PARTITION_KINDS: Final = ("partition_3_1", "partition_2_2")
"""In a second network, whose nodes have network namespaces of their own."""
ALL_KINDS: Final = SINGLE_KINDS + PARTITION_KINDS
HOLD_S: Final = {
    "kill_node": (0.0, 5.0),
    "pause_engine": (2.0, 10.0),
    "pause_app": (2.0, 10.0),
    "pause_node": (2.0, 10.0),
    DISK_FULL: (2.0, 5.0),
}
"""Least and most seconds that a fault lasts, where that is ours to choose."""
GAP_S: Final = (0.5, 3.0)
"""Least and most seconds of quiet after the node of the fault before is well again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One disturbance of one node."""

    kind: str
    node: int
    hold_s: float
    """How long it lasts, before the node is helped or left to help itself."""
    gap_s: float
    """Quiet before it."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Nodes with a special part, chosen by the seed.

    Node 0 keeps every block, as the audit reads the chain from it; only `sync_node` ever loses old blocks (state sync
    does not fetch them), so that a node which rejoins by block sync always finds two others that have them all.
    """

    disk_node: int
    """Its home lies on the small disk."""
    sync_node: int
    """The one that rejoins by state sync."""


def choose_roles(seed: int, nodes: int) -> Roles:
    """Two different nodes, never node 0. `nodes` is 3 or more."""
    disk, sync = random.Random(f"roles/{seed}").sample(range(1, nodes), 2)
    return Roles(disk_node=disk, sync_node=sync)


def make_plan(kinds: Sequence[str], seed: int, nodes: int) -> Iterator[Fault]:
    """Faults without end. `kinds` are of SINGLE_KINDS, at least one."""
    chance, roles = random.Random(f"plan/{seed}"), choose_roles(seed, nodes)
    fixed = {DISK_FULL: roles.disk_node, STATE_SYNC: roles.sync_node}
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            node = chance.randrange(nodes)
            hold_s = chance.uniform(*HOLD_S.get(kind, (0.0, 0.0)))
            yield Fault(kind=kind, node=fixed.get(kind, node), hold_s=hold_s, gap_s=chance.uniform(*GAP_S))
