"""Processes are restarted, stopped in order, and never outlive the supervisor; starting fails in clear words."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from node import children
from node.checks import check_genesis_file, check_paths, check_ports, single_instance
from node.children import ChildSpec, GivenUp, Group, last_lines, last_words, rotate_log
from node.config import NodeConfig, ports_from, save_config
from node.engine_files import GENESIS_NAME
from node.errors import SetupError
from node.reset import main as reset
from node.supervisor import EXIT_SETUP, advice, run_node
from tests.node.conftest import Made
from tests.ports import free_ports

SLEEPER = "import signal, time\nprint('up', flush=True)\ntime.sleep(600)"
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
)


def spec(folder: Path, name: str, code: str) -> ChildSpec:
    log = folder / f"{name}.log"

    async def healthy() -> bool:
        return "up" in (last_lines(log, 1) or [""])[-1]

    def forget() -> None:
        log.unlink(missing_ok=True)

    return ChildSpec(
        name=name,
        command=[sys.executable, "-c", code],
        folder=folder,
        log=log,
        pid_file=folder / f"{name}.pid",
        healthy=healthy,
        before_start=forget,
    )


def pid_of(folder: Path, name: str) -> int:
    return int((folder / f"{name}.pid").read_text())


@asynccontextmanager
async def running(group: Group) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(group.keep_running())
    try:
        async with asyncio.timeout(15):
            await group.ready.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await group.stop()


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.02)


async def ready_again(group: Group, folder: Path, name: str, before: int) -> None:
    async with asyncio.timeout(15):
        while not group.ready.is_set() or pid_of(folder, name) == before:
            await asyncio.sleep(0.02)


async def test_members_of_a_group_restart_together(tmp_path: Path) -> None:
    group = Group("pair", [spec(tmp_path, "a", SLEEPER), spec(tmp_path, "b", SLEEPER)])
    async with running(group):
        for victim in ("a", "b"):
            before = {name: pid_of(tmp_path, name) for name in ("a", "b")}
            os.kill(before[victim], signal.SIGKILL)
            await ready_again(group, tmp_path, "a", before["a"])
            after = {name: pid_of(tmp_path, name) for name in ("a", "b")}
            assert not set(before.values()) & set(after.values())
            for pid in before.values():
                await until_gone(pid)
    for pid in after.values():
        assert not psutil.pid_exists(pid)


async def test_group_that_is_killed_from_outside_is_never_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(children, "MAX_QUICK_FAILURES", 2)
    group = Group("one", [spec(tmp_path, "a", SLEEPER)])
    async with running(group) as task:
        for _ in range(4):
            before = pid_of(tmp_path, "a")
            os.kill(before, signal.SIGKILL)
            await ready_again(group, tmp_path, "a", before)
        assert not task.done()


async def test_group_that_fails_by_itself_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(children, "MAX_QUICK_FAILURES", 3)
    group = Group("broken", [spec(tmp_path, "a", "import sys; sys.exit('the disk is made of cheese')")])
    with pytest.raises(GivenUp, match=r"broken failed 3 times[\s\S]*made of cheese"):
        await group.keep_running()


async def test_child_that_ignores_the_signal_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "STOP_S", 0.2)
    group = Group("stubborn", [spec(tmp_path, "a", STUBBORN)])
    async with running(group):
        pid = pid_of(tmp_path, "a")
    assert not psutil.pid_exists(pid)
    assert not (tmp_path / "a.pid").exists()


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from node.children import Group
        from tests.node.test_supervision import SLEEPER, spec
        async def main():
            group = Group("pair", [spec(Path({str(tmp_path)!r}), n, SLEEPER) for n in ("a", "b")])
            asyncio.get_running_loop().create_task(group.keep_running())
            await group.ready.wait()
            print("ready", flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """)
    root = str(Path(children.__file__).parent.parent)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        offspring = psutil.Process(parent.pid).children(recursive=True)
        assert len(offspring) == 2
        parent.kill()
    _, alive = psutil.wait_procs(offspring, timeout=10)
    assert alive == []


def test_log_that_grew_large_is_cut_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MAX_LOG_BYTES", 10)
    path = tmp_path / "a.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"0123456789")
        rotate_log(path)
        writer.write(b"more")
    assert path.read_bytes() == b"more"
    assert (tmp_path / "a.log.1").read_bytes() == b"0123456789"


def test_log_whose_older_part_cannot_be_written_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, say. It must not stop the node."""
    monkeypatch.setattr(children, "MAX_LOG_BYTES", 5)
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789")
    (tmp_path / "a.log.1").mkdir()
    rotate_log(path)
    assert path.read_bytes() == b"0123456789"


# --- before the start ---------------------------------------------------------------------------------------------
def test_second_node_in_one_home_is_refused(made: Made) -> None:
    again = pytest.raises(SetupError, match=f"runs in .* already .process {os.getpid()}")
    with single_instance(made.home), again, single_instance(made.home):
        pass
    with single_instance(made.home):
        assert (made.home / "run/node.lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("name", ["p2p", "engine_rpc", "services", "engine_metrics"])
def test_taken_port_is_named_with_its_holder(name: str) -> None:
    base = free_ports(4)
    port = base + ["p2p", "engine_rpc", "services", "engine_metrics"].index(name)
    refused = pytest.raises(SetupError, match=rf"network\.{name}: .* is taken by process {os.getpid()}")
    with socket.create_server(("127.0.0.1", port)), refused:
        check_ports(NodeConfig(network=ports_from(base)))


def test_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(SetupError, match=r"network\.p2p: 203\.0\.113\.1:40000 cannot be used"):
        check_ports(NodeConfig(network=ports_from(40000, host="203.0.113.1")))


def test_folder_that_cannot_be_written_is_named(made: Made) -> None:
    (made.home / "data").rmdir()
    (made.home / "data").write_text("in the way")
    with pytest.raises(SetupError, match=r"cannot write in .*/data"):
        check_paths(made.home)


def test_missing_or_foreign_genesis_is_named(made: Made) -> None:
    path = made.home / GENESIS_NAME
    path.unlink()
    with pytest.raises(SetupError, match=r"there is no .*genesis\.json"):
        check_genesis_file(made.home)
    path.write_text(json.dumps({"chain_id": "x"}))
    with pytest.raises(SetupError, match="not a genesis of this program"):
        check_genesis_file(made.home)


def test_node_without_configuration_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_node(tmp_path) == EXIT_SETUP
    assert "outerstep node init" in caplog.text


def test_node_whose_port_is_taken_does_not_start(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        save_config(made.home, NodeConfig(network=ports_from(holder.getsockname()[1])))
        assert run_node(made.home) == EXIT_SETUP
    assert "network.p2p" in caplog.text
    assert not list((made.home / "run").glob("*.pid"))


def test_reset_keeps_keys_and_signing_state(made: Made) -> None:
    """FAULTS C2."""
    kept = {path: path.read_bytes() for path in made.home.rglob("*") if path.is_file()}
    for name in ("data/app/000001.log", "cometbft/data/blockstore.db/1.ldb", "cometbft/data/cs.wal/wal"):
        (made.home / name).parent.mkdir(parents=True)
        (made.home / name).write_bytes(b"x")
    assert reset(["--home", str(made.home)]) == 0
    left = {path: path.read_bytes() for path in made.home.rglob("*") if path.is_file()}
    assert {path: data for path, data in left.items() if path.name != "node.lock"} == kept
    assert (made.home / "cometbft/data/priv_validator_state.json") in left


def test_running_node_is_not_reset(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    with single_instance(made.home):
        assert reset(["--home", str(made.home)]) == 1
    assert "already" in capsys.readouterr().err


def test_beginning_of_a_panic_says_more_than_its_end() -> None:
    assert last_words(["a", "panic: b", "c", "d", "goroutine 1", "e"]) == ["panic: b", "c", "d"]
    assert last_words([str(number) for number in range(10)]) == [str(number) for number in range(2, 10)]


def test_known_last_words_come_with_advice() -> None:
    assert "outerstep node reset" in advice("panic: app block height (9) is higher than core (5)")
    assert advice("something new") == ""
