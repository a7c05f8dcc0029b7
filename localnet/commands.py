"""What the commands of `localnet.cli` do; imported when one of them runs."""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

import psutil
import typer
from rich.console import Console
from rich.table import Table

from localnet.control import NotRunning, shut_down
from localnet.health import NodeHealth, look_at_all
from localnet.homes import HomesError, create_homes_for
from localnet.logs import follow, tail
from localnet.network import Localnet, StartFailed
from localnet.ports import PortError
from localnet.processes import spawn
from localnet.state import NetworkState, NodeState, StateError, load_state

CHECK_S: Final = 1.0
APP_HASH_SHOWN: Final = 8
"""Hex digits of an app hash in the table; all of them are in the JSON."""


def run_up(nodes: int, home: Path, base_port: str, *, detach: bool) -> None:
    port = _parse_port(base_port)
    if detach:
        _start_detached(nodes, home, base_port)
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        asyncio.run(_run(Localnet(home, nodes=nodes, base_port=port, say=_say)))
    except KeyboardInterrupt:
        _say("stopped; nothing is left running")
    except (PortError, HomesError, StartFailed, StateError) as error:
        _fail(str(error))
    finally:
        signal.signal(signal.SIGTERM, before)


def run_init(hosts: list[str], home: Path, base_port: int) -> None:
    try:
        made = create_homes_for(home.absolute(), hosts, base_port)
    except HomesError as error:
        _fail(str(error))
    for host, folder in zip(hosts, made, strict=True):
        _say(f"{folder}: copy it to {host}, and run there: outerstep node start --home {folder.name}")


def run_down(home: Path) -> None:
    try:
        stopped = shut_down(home.absolute())
    except (StateError, NotRunning) as error:
        _fail(str(error))
    _say(f"stopped {stopped} nodes; `outerstep localnet up` continues where they were")


def show_status(home: Path, *, as_json: bool) -> None:
    state = _load(home)
    found = asyncio.run(look_at_all(state.nodes))
    if as_json:
        typer.echo(json.dumps(_status_document(state, found), indent=2))
    else:
        Console().print(_status_table(state, found))
    if not all(health.healthy for health in found):
        raise typer.Exit(1)


def show_logs(node: str, home: Path, *, follow_on: bool, lines: int) -> None:
    nodes = _choose(_load(home), node)
    for line in tail(nodes, lines):
        typer.echo(line)
    if follow_on:
        try:
            for line in follow(nodes):
                typer.echo(line)
        except KeyboardInterrupt:
            return


async def _run(net: Localnet) -> None:
    async with net:
        for node in net.nodes:
            _say(f"{node.name}: JSON-RPC {node.url}/rpc, CometBFT {node.engine_url}, validator {node.operator}")
        _say(f"chain {net.state.chain_id}; key of the account with the free tokens: {net.state.faucet}")
        _say("running; Ctrl-C stops all nodes")
        while True:
            await asyncio.sleep(CHECK_S)
            net.check_alive()


def _start_detached(nodes: int, home: Path, base_port: str) -> None:
    """Run `up` in a process of its own and wait until it is ready or has failed."""
    home = home.absolute()
    log = home.parent / f"{home.name}.log"
    command = ["-m", "localnet.cli", "up", "--nodes", str(nodes), "--home", str(home), "--base-port", base_port]
    place = log.stat().st_size if log.exists() else 0
    try:
        process = spawn([sys.executable, *command], log, outlives_us=True)
    except OSError as error:
        _fail(f"cannot write {log}: {error.strerror}; choose another --home")
    while process.poll() is None:
        if _is_ready(home, process):
            _say(f"running in the background (process {process.pid}, log {log}); stop it with `{_down(home)}`")
            return
        time.sleep(0.2)
    with log.open(errors="replace") as file:
        file.seek(place)
        _fail(file.read().strip())


def _is_ready(home: Path, process: psutil.Popen) -> bool:
    try:
        state = load_state(home)
    except StateError:
        return False
    return state.ready and state.owner.pid == process.pid


def _down(home: Path) -> str:
    return f"outerstep localnet down --home {home}"


def _parse_port(text: str) -> int | None:
    """None means: the one that the folder was made for, else a free one."""
    if text == "auto":
        return None
    if not text.isdecimal():
        _fail(f"--base-port is {text!r}; it should be a number or auto")
    return int(text)


def _load(home: Path) -> NetworkState:
    try:
        return load_state(home.absolute())
    except StateError as error:
        _fail(str(error))


def _choose(state: NetworkState, node: str) -> list[NodeState]:
    if not node:
        return list(state.nodes)
    chosen = [other for other in state.nodes if node in (str(other.index), other.name)]
    if not chosen:
        _fail(f"there is no node {node!r}; the network has 0 to {len(state.nodes) - 1}")
    return chosen


def _status_document(state: NetworkState, found: list[NodeHealth]) -> dict[str, object]:
    return {
        "chain_id": state.chain_id,
        "base_port": state.base_port,
        "ready": state.ready and state.owner.find() is not None,
        "nodes": [
            {
                "index": node.index,
                "healthy": health.healthy,
                "height": health.height,
                "app_hash": health.app_hash,
                "peers": health.peers,
                "catching_up": health.catching_up,
                "problem": health.problem,
                "url": node.url,
                "engine_url": node.engine_url,
                "operator": node.operator,
                "home": node.home,
            }
            for node, health in zip(state.nodes, found, strict=True)
        ],
    }


def _status_table(state: NetworkState, found: list[NodeHealth]) -> Table:
    table = Table("node", "state", "height", title=f"chain {state.chain_id}")
    table.add_column("app hash", min_width=APP_HASH_SHOWN)
    table.add_column("peers")
    table.add_column("JSON-RPC", no_wrap=True)
    for node, health in zip(state.nodes, found, strict=True):
        words = "catching up" if health.catching_up else "healthy" if health.healthy else health.problem
        app_hash = health.app_hash[:APP_HASH_SHOWN]
        table.add_row(node.name, words, str(health.height), app_hash, str(health.peers), f"{node.url}/rpc")
    return table


def _interrupt(number: int, frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _say(text: str) -> None:
    typer.echo(f"localnet: {text}")


def _fail(text: str) -> NoReturn:
    typer.echo(f"localnet: {text}", err=True)
    raise typer.Exit(1)
