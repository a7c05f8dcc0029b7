"""A chaos run from beginning to end; each part stands in its own module beside this one."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from rich.console import Console

from localnet.audit import count_supply, read_accounts
from localnet.chaos.disk import DiskError, SmallDisk
from localnet.chaos.faults import INJECTIONS, Scene, inject
from localnet.chaos.findings import NODES, ChaosOptions, Findings
from localnet.chaos.history import differing, genesis_accounts, read_history
from localnet.chaos.ledger import audit_ledger
from localnet.chaos.load import Load
from localnet.chaos.plan import DISK_FULL, SINGLE_KINDS, choose_roles, make_plan
from localnet.chaos.report import INTERRUPTED, write_report
from localnet.chaos.watch import Watch
from localnet.homes import HomesError, create_homes, existing_network
from localnet.network import Localnet
from localnet.ports import claim
from localnet.state import save_state

PAYERS: Final = 6
AUDIT_S: Final = 60.0
"""Kept free at the end for the audit."""
LAST_FAULT_S: Final = 600.0
"""No fault begins later than this, so that the run ends within a quarter of an hour."""
EQUAL_S: Final = 60.0
"""How long all nodes may take to reach one height at the end."""


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
            kinds = self._possible_kinds()
            if kinds:
                await self._one_at_a_time(kinds)
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
                shutil.rmtree(self.options.home)

    # --- one node at a time ---------------------------------------------------------------------------------------
    async def _one_at_a_time(self, kinds: tuple[str, ...]) -> None:
        roles = choose_roles(self.options.seed, NODES)
        net = Localnet(_make_network(self.options.home), nodes=NODES, say=self.say)
        disk = self._small_disk(self.options.home / f"node{roles.disk_node}") if DISK_FULL in kinds else None
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

    def _possible_kinds(self) -> tuple[str, ...]:
        """Those asked for that one network can be disturbed with; the others are noted as skipped."""
        for kind in self.options.kinds:
            if kind not in INJECTIONS:
                self.findings.skipped[kind] = "this version cannot inject it yet"
        return tuple(kind for kind in SINGLE_KINDS if kind in self.options.kinds and kind in INJECTIONS)

    def _small_disk(self, folder: Path) -> SmallDisk | None:
        """None, with the reason in the findings, when there can be none here."""
        if self.options.no_disk is not None:
            self.findings.skipped[DISK_FULL] = self.options.no_disk
            return None
        try:
            return SmallDisk(folder)
        except DiskError as error:
            self.findings.skipped[DISK_FULL] = str(error)
            return None

    async def _disturb(self, net: Localnet, disk: SmallDisk | None, kinds: tuple[str, ...]) -> None:
        watch = Watch(NODES)
        scene = Scene(net=net, watch=watch, disk=disk, began_s=self._began_s)
        async with (
            _watching(watch, net),
            Load(net, self.options.home / "load.jsonl", seed=self.options.seed, payers=PAYERS) as load,
        ):
            self.findings.told = load.journal.told
            try:
                await self._inject_all(scene, load, kinds)
                self.say("the load finishes its last payments")
                await load.stop()
            finally:
                self.findings.longest_stall_s = watch.longest_stall_s
        await self._audit(net)

    async def _inject_all(self, scene: Scene, load: Load, kinds: tuple[str, ...]) -> None:
        enough_s = min(self.options.minutes * 60 - AUDIT_S, LAST_FAULT_S)
        missing = set(kinds)
        for fault in make_plan(kinds, self.options.seed, NODES):
            if self.seconds > (LAST_FAULT_S if missing else enough_s):
                break
            await asyncio.sleep(fault.gap_s)
            load.check()
            self.say(f"{fault.kind} at node{fault.node}, height {scene.watch.height} …")
            record = await inject(scene, fault)
            missing.discard(fault.kind)
            self.findings.faults.append(record)
            self.findings.longest_stall_s = scene.watch.longest_stall_s
            told = self.findings.told
            self.say(
                f"  well again after {record.lasted_s:.1f} s: {record.note} (fault {len(self.findings.faults)}, "
                f"{len(told.acknowledged)} payments committed, longest stall {scene.watch.longest_stall_s:.1f} s)"
            )
        self.findings.skipped |= dict.fromkeys(missing, "no time was left for it")

    # --- what came of it ------------------------------------------------------------------------------------------
    async def _audit(self, net: Localnet) -> None:
        """Compare all nodes with one another and with what the senders were told."""
        height = max(health.height for health in await net.health())
        await net.wait_for_height(height + 1, nodes=range(NODES), timeout_s=EQUAL_S)
        self.say(f"reading {height} blocks from each of {NODES} nodes")
        histories = [await read_history(node, height) for node in net.nodes]
        self.findings.histories = list(histories)
        for different in differing(histories)[:20]:
            self.say(f"  height {different}: {[history.get(different) for history in histories]}")
        accounts = [await read_accounts(node) for node in net.nodes]
        self.findings.ledger = audit_ledger(self.findings.told, histories, genesis_accounts(net.nodes[0]), accounts)
        counts = [await count_supply(node) for node in net.nodes]
        self.findings.supply_conserved = all(count.conserved for count in counts)


def _clear(home: Path) -> None:
    """Remove what an earlier run left; never under the feet of one that still runs.

    Raises: HomesError.
    """
    earlier = existing_network(home)
    if earlier is not None and earlier.owner.find() is not None:
        raise HomesError(
            f"a network is running in {home} (process {earlier.owner.pid}); stop it, or use another --home"
        )
    if home.exists():
        shutil.rmtree(home)
    home.mkdir(parents=True)


def _make_network(home: Path) -> Path:
    """The homes of the nodes, before any of them is started."""
    with claim(None, NODES) as base_port:
        save_state(home, create_homes(home, nodes=NODES, base_port=base_port))
    return home


@contextlib.asynccontextmanager
async def _watching(watch: Watch, net: Localnet) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run(net.nodes))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
