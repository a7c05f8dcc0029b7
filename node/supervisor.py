"""Runs one node: application and engine (which live and die together), then the services.

    python -m node.supervisor --home DIR

Writes DIR/run/*.pid and DIR/logs/*.log. SIGINT or SIGTERM stops everything in order; a second one does not wait.
"""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp

import node
from node.checks import check_genesis_file, check_paths, check_ports, single_instance
from node.children import ChildSpec, GivenUp, Group, rotate_log
from node.config import NodeConfig, load_config, local_address
from node.engine import find_engine
from node.engine_files import ENGINE_FOLDER, SOCKET_NAME, write_engine_config
from node.errors import SetupError
from node.init import OPERATOR_KEY, SERVICE_KEY
from node.keys import load_key
from node.trouble import DiskRoom, EngineHalt

logger = logging.getLogger("outerstep.supervisor")

ROOT: Final = Path(node.__file__).resolve().parent.parent
ENGINE_TEMPORARY: Final = "run/engine-tmp"
"""Where CometBFT puts the chunks of a snapshot until they are applied: they may not fit into the system's folder."""
PROBE_TIMEOUT_S: Final = 2.0
ROTATE_EVERY_S: Final = 60.0
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_SETUP: Final = 2

HINTS: Final[tuple[tuple[str, str], ...]] = (
    (
        "higher than core",
        "The application is ahead of the engine: the engine's data was reset or restored from an older copy. Bring the "
        "newer copy back, or start over from the other nodes: outerstep node reset (keys and signing state are kept).",
    ),
    (
        "did you reset CometBFT without resetting your application's data",
        "Engine and application hold different histories. Start over from the other nodes: outerstep node reset.",
    ),
    (
        "failed to set up light client state provider",
        "State sync cannot begin: the sources in config.toml do not answer, or have another block at trust_height, or "
        "the trust is older than trust_period_h. Choose anew: outerstep node reset, then outerstep node state-sync.",
    ),
    (
        "stores were left in an inconsistent state",
        "The engine ended between a state sync and the first block after it, so there is nothing to lose: outerstep "
        "node reset, and start again.",
    ),
    (
        "too far below block store base",
        "The application's data is gone, and after a state sync the engine has not all blocks to make it again. Start "
        "over from the other nodes: outerstep node reset, then outerstep node state-sync.",
    ),
    ("Did the application crash", "The application ended first; its log says why."),
    ("no space left on device", "The disk is full."),
)
"""What known last words mean, and what to do."""


def run_node(home: Path) -> int:
    """Run the node in `home` until it is told to stop; the exit status: 0 stopped, 1 gave up, 2 could not start."""
    home = home.absolute()
    try:
        config = load_config(home)
        check_paths(home)
        with single_instance(home):
            groups = prepare(home, config)
            return asyncio.run(supervise(groups, home))
    except SetupError as error:
        logger.error("%s", error)
        return EXIT_SETUP


def prepare(home: Path, config: NodeConfig) -> list[Group]:
    """Check everything that can be checked beforehand, write the engine's configuration, name the processes.

    Raises: SetupError.
    """
    chain_id = check_genesis_file(home)
    for name in (OPERATOR_KEY, SERVICE_KEY):
        load_key(home / name)
    engine = find_engine()
    check_ports(config)
    write_engine_config(home, config)
    (home / SOCKET_NAME).unlink(missing_ok=True)
    logger.info("chain %s, engine %s, services at %s", chain_id, engine, config.network.public_url)
    chain = chain_specs(home, config, engine)
    halt = EngineHalt(home / "logs/engine.log")
    return [
        Group("chain", chain, hindrance=DiskRoom(home), failure=halt),
        Group("services", _service_specs(home, config)),
    ]


async def supervise(groups: list[Group], home: Path) -> int:
    """Keep the groups running, each started once the one before is ready, until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    (home / "run/node.pid").write_text(f"{os.getpid()}\n")
    tasks = [asyncio.create_task(_start_all(groups)), asyncio.create_task(_rotate_logs(home))]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            logger.info("stopping")
            return EXIT_OK
        tasks[0].result()
        return EXIT_FAILED
    except* GivenUp as failures:
        for failure in failures.exceptions:
            logs = failure.logs if isinstance(failure, GivenUp) else ""
            logger.error("%s%s", failure, advice(logs))
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)
        for group in reversed(groups):
            await group.stop()
        (home / "run/node.pid").unlink(missing_ok=True)
    return EXIT_FAILED


async def _start_all(groups: list[Group]) -> None:
    async with asyncio.TaskGroup() as running:
        for group in groups:
            running.create_task(group.keep_running())
            await group.ready.wait()
            logger.info("%s: ready", group.name)


async def _rotate_logs(home: Path) -> None:
    while True:
        await asyncio.sleep(ROTATE_EVERY_S)
        for path in (home / "logs").glob("*.log"):
            await asyncio.to_thread(rotate_log, path)


def advice(logs: str) -> str:
    """What to do about the first known trouble in the end of some logs, on a line of its own; "" for unknown ones."""
    return next((f"\n{text}" for words, text in HINTS if words.lower() in logs.lower()), "")


def chain_specs(home: Path, config: NodeConfig, engine: Path) -> list[ChildSpec]:
    """Application and engine, in the order in which they start."""
    socket_path = home / SOCKET_NAME
    rpc = f"http://{local_address(config.network.engine_rpc)}/health"

    async def app_listens() -> bool:
        return socket_path.exists()

    async def engine_answers() -> bool:
        return await _answers(rpc)

    app = _python("abci_app", "--socket", SOCKET_NAME, "--data", "data/app", "--log-level", config.log_level)
    app += ["--snapshot-interval", str(config.snapshots.interval_blocks), "--snapshot-keep", str(config.snapshots.keep)]
    return [
        _spec(home, "app", app, app_listens, before_start=lambda: socket_path.unlink(missing_ok=True)),
        _spec(
            *(home, "engine", [str(engine), "start", "--home", ENGINE_FOLDER], engine_answers),
            before_start=lambda: _make_anew(home / ENGINE_TEMPORARY),
            environment={"TMPDIR": str(home / ENGINE_TEMPORARY)},
        ),
    ]


def _service_specs(home: Path, config: NodeConfig) -> list[ChildSpec]:
    url = f"http://{local_address(config.network.services)}/health"

    async def services_answer() -> bool:
        return await _answers(url)

    return [_spec(home, "services", _python("node.services", "--home", str(home)), services_answer)]


def _spec(
    home: Path,
    name: str,
    command: list[str],
    healthy: Callable[[], Awaitable[bool]],
    before_start: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> ChildSpec:
    return ChildSpec(
        name=name,
        command=command,
        folder=home,
        log=home / f"logs/{name}.log",
        pid_file=home / f"run/{name}.pid",
        healthy=healthy,
        before_start=before_start,
        environment={
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **(environment or {}),
        },
    )


def _make_anew(folder: Path) -> None:
    """An empty folder, whatever was there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _python(module: str, *arguments: str) -> list[str]:
    """A module of ours, never one that happens to lie in the working folder (-P)."""
    return [sys.executable, "-P", "-m", module, *arguments]


async def _answers(url: str) -> bool:
    """Whether anything answers there, whatever it says."""
    try:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url):
            return True
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m node.supervisor", description="Run one node until stopped.")
    parser.add_argument("--home", type=Path, required=True, help="the node's folder (outerstep node init makes one)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    return run_node(chosen.home)


if __name__ == "__main__":
    sys.exit(main())
