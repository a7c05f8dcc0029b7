"""A chaos run from beginning to end; each part stands in its own module beside this one."""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from localnet.chaos.audit import audit_network
from localnet.chaos.disk import DiskError, SmallDisk
from localnet.chaos.faults import INJECTIONS, FaultFailed, Scene, inject
from localnet.chaos.findings import NODES, ChaosOptions, Findings, NetworkFindings
from localnet.chaos.history import differing
from localnet.chaos.load import Load
from localnet.chaos.partition import NamespaceNet, PartitionFailed, cut_and_heal, lay_out, make_network
from localnet.chaos.plan import DISK_FULL, PARTITION_KINDS, SINGLE_KINDS, STATE_SYNC, Fault, choose_roles, make_plan
from localnet.chaos.report import INTERRUPTED, FaultRecord, write_report
from localnet.chaos.watch import Watch
from localnet.homes import HomesError, create_homes, existing_network
from localnet.network import Localnet, StartFailed
from localnet.ports import claim
from localnet.state import save_state
from node.config import SnapshotsConfig, load_config, save_config

NETWORKS: Final = ("net", "cut")
"""Folders below the home, one for each network."""
SNAPSHOT_BLOCKS: Final = 100
"""How often nodes take snapshots: within a run, there must be one to restore."""
PAYERS: Final = 6
AUDIT_S: Final = 60.0
"""Kept free at the end for the audit."""
PARTITION_S: Final = 100.0
"""Kept free for the second network."""
LAST_FAULT_S: Final = 600.0
"""No fault begins later than this, so that the run ends within a quarter of an hour."""
SMALLER_PART: Final = {"partition_3_1": 1, "partition_2_2": 2}
"""How many nodes are cut off."""


class Run:
    """One run: says what it does, collects what it finds."""

    def __init__(self, options: ChaosOptions, console: Console) -> None:
        self.options = options
        self.findings = Findings(options=options)
        self._console = console
        self._began_s = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start of the run."""
        return time.monotonic() - self._began_s

    def say(self, text: str) -> None:
        self._console.print(f"[{self.seconds:6.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    async def everything(self) -> None:
        """Both networks, one after the other; then the report is written, whatever has happened.

        Raises: what ended it early; nothing is left running.
        """
        try:
            _clear(self.options.home)
            if kinds := self._possible_kinds(SINGLE_KINDS):
                await self._one_at_a_time(kinds)
            if kinds := self._possible_kinds(PARTITION_KINDS):
                await self._cut_apart(kinds)
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.findings.failed = INTERRUPTED
            raise
        except BaseException as error:
            self.findings.failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            report = self.findings.report()
            write_report(report, self.options.report)
            if report.failed is None and not report.problems and not self.options.keep:
                _remove(self.options.home)

    # --- one node at a time ---------------------------------------------------------------------------------------
    async def _one_at_a_time(self, kinds: tuple[str, ...]) -> None:
        roles = choose_roles(self.options.seed, NODES)
        net = Localnet(_make_network(self.options.home / "net"), nodes=NODES, say=self.say)
        disk = self._small_disk(net.home / f"node{roles.disk_node}") if DISK_FULL in kinds else None
        if disk is None:
            kinds = tuple(kind for kind in kinds if kind != DISK_FULL)
        if not kinds:
            return
        keep = True
        try:
            async with net:
                await self._disturb(net, disk, kinds)
            keep = self.options.keep or bool(self.findings.report().problems)
        finally:
            if disk is not None:
                disk.remove(keep=keep)

    def _possible_kinds(self, group: Sequence[str]) -> tuple[str, ...]:
        """Those of `group` that were asked for and can be injected; the others asked for are noted as skipped."""
        asked = tuple(kind for kind in group if kind in self.options.kinds)
        possible = tuple(kind for kind in asked if kind in INJECTIONS or kind in SMALLER_PART)
        self.findings.skipped |= dict.fromkeys(set(asked) - set(possible), "this version cannot inject it yet")
        return possible

    def _small_disk(self, folder: Path) -> SmallDisk | None:
        """None, with the reason in the findings, when there can be none here."""
        if self.options.no_namespaces is not None:
            self.findings.skipped[DISK_FULL] = self.options.no_namespaces
            return None
        try:
            return SmallDisk(folder)
        except DiskError as error:
            self.findings.skipped[DISK_FULL] = str(error)
            return None

    async def _disturb(self, net: Localnet, disk: SmallDisk | None, kinds: tuple[str, ...]) -> None:
        watch, found = Watch(NODES), NetworkFindings()
        self.findings.networks.append(found)
        scene = Scene(net=net, watch=watch, disk=disk, began_s=self._began_s)
        async with _watching(watch, net), self._loaded(net, found) as load:
            try:
                await self._inject_all(scene, load, kinds)
                self.say("the load finishes its last payments")
                await load.stop()
            finally:
                self.findings.longest_stall_s = watch.longest_stall_s
        await audit_network(net, found, self.say)

    async def _inject_all(self, scene: Scene, load: Load, kinds: tuple[str, ...]) -> None:
        reserved_s = AUDIT_S + (PARTITION_S if set(PARTITION_KINDS) & set(self.options.kinds) else 0.0)
        enough_s = min(self.options.minutes * 60 - reserved_s, LAST_FAULT_S)
        missing = set(kinds)
        for fault in make_plan(kinds, self.options.seed, NODES):
            if self.seconds > (LAST_FAULT_S if missing else enough_s):
                break
            await asyncio.sleep(fault.gap_s)
            load.check()
            self.say(f"{fault.kind} at node{fault.node}, height {scene.watch.height} …")
            record = await self._inject(scene, fault)
            missing.discard(fault.kind)
            self.findings.faults.append(record)
            self.findings.longest_stall_s = scene.watch.longest_stall_s
            told = load.journal.told
            self.say(
                f"  well again after {record.lasted_s:.1f} s: {record.note} (fault {len(self.findings.faults)}, "
                f"{len(told.acknowledged)} payments committed, longest stall {scene.watch.longest_stall_s:.1f} s)"
            )
        self.findings.skipped |= dict.fromkeys(missing, "no time was left for it")

    async def _inject(self, scene: Scene, fault: Fault) -> FaultRecord:
        try:
            record = await inject(scene, fault)
        except (FaultFailed, TimeoutError):
            if fault.kind == STATE_SYNC:
                self.findings.state_sync_ok = False
            raise
        if fault.kind == STATE_SYNC:
            self.findings.state_sync_ok = True
        return record

    # --- parts of a network cut apart -----------------------------------------------------------------------------
    async def _cut_apart(self, kinds: tuple[str, ...]) -> None:
        """Every cut once, in a network of its own; what goes wrong with a cut ends the run."""
        if self.options.no_namespaces is not None:
            self.findings.skipped |= dict.fromkeys(kinds, self.options.no_namespaces)
            return
        try:
            await asyncio.to_thread(lay_out, NODES)
        except PartitionFailed as error:
            self.findings.skipped |= dict.fromkeys(kinds, f"no network of namespaces: {error}")
            return
        chance, found = random.Random(f"partition/{self.options.seed}"), NetworkFindings()
        self.findings.networks.append(found)
        try:
            await self._cut_all(kinds, chance, found)
        except (PartitionFailed, StartFailed, TimeoutError):
            self.findings.partition_ok = False
            raise
        self.findings.partition_ok = not differing(found.histories)

    async def _cut_all(self, kinds: tuple[str, ...], chance: random.Random, found: NetworkFindings) -> None:
        net = NamespaceNet(make_network(self.options.home / "cut", NODES), nodes=NODES, say=self.say)
        async with net:
            async with self._loaded(net, found) as load:
                for kind in kinds:
                    smaller = sorted(chance.sample(range(NODES), SMALLER_PART[kind]))
                    self.say(f"{kind}: nodes {smaller} are cut off …")
                    self.findings.partitions[kind] = await cut_and_heal(net, smaller)
                    self.say(f"  together again: {self.findings.partitions[kind]}")
                await load.stop()
            await audit_network(net, found, self.say)

    @contextlib.asynccontextmanager
    async def _loaded(self, net: Localnet, found: NetworkFindings) -> AsyncIterator[Load]:
        """Payers at work on `net`, what they are told in `found`."""
        async with Load(net, net.home / "load.jsonl", seed=self.options.seed, payers=PAYERS) as load:
            found.told = load.journal.told
            yield load


def _clear(home: Path) -> None:
    """Remove the networks of an earlier run; nothing else, and never under the feet of one that still runs.

    Raises: HomesError.
    """
    for network in (home / name for name in NETWORKS):
        earlier = existing_network(network)
        if earlier is not None and earlier.owner.find() is not None:
            raise HomesError(
                f"a chaos run is using {home} (process {earlier.owner.pid}); stop it, or use another --home"
            )
        if earlier is None and network.exists():
            raise HomesError(f"{network} is not of a chaos run; remove it, or use another --home")
    _remove(home)
    home.mkdir(parents=True, exist_ok=True)


def _remove(home: Path) -> None:
    for name in NETWORKS:
        if (home / name).exists():
            shutil.rmtree(home / name)
    with contextlib.suppress(OSError):
        home.rmdir()


def _make_network(home: Path) -> Path:
    """The homes of the nodes, before any of them is started."""
    with claim(None, NODES) as base_port:
        network = create_homes(home, nodes=NODES, base_port=base_port)
        save_state(home, network)
    for node in network.nodes:
        config = load_config(Path(node.home))
        save_config(Path(node.home), replace(config, snapshots=SnapshotsConfig(interval_blocks=SNAPSHOT_BLOCKS)))
    return home


@contextlib.asynccontextmanager
async def _watching(watch: Watch, net: Localnet) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run(net.nodes))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
