"""`localnet up` and `down` as a person uses them: clear refusals, and nothing left behind."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from typer.testing import CliRunner, Result

from localnet.cli import app
from localnet.processes import descendants, wait_gone
from localnet.state import load_state
from tests.ports import free_ports

COMMAND = [sys.executable, "-m", "localnet.cli"]
GONE_S = 20.0


@pytest.fixture
def home() -> Iterator[Path]:
    with TemporaryDirectory(prefix="on-") as name:
        yield Path(name) / "net"


def run(*arguments: str | Path) -> Result:
    """One command inside this process."""
    return CliRunner().invoke(app, [str(word) for word in arguments])


def start_up(home: Path) -> tuple["subprocess.Popen[str]", list[psutil.Process]]:
    """`up` with two nodes; returns once it says that it is running, with all processes below it."""
    process = subprocess.Popen(
        [*COMMAND, "up", "--nodes", "2", "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "running; Ctrl-C" in line:
            return process, descendants(psutil.Process(process.pid))
    process.wait()
    pytest.fail("up ended early:\n" + "".join(said))


def finish(process: "subprocess.Popen[str]") -> str:
    """The rest of what it says, once it has ended."""
    try:
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return rest


def test_a_taken_port_is_named_with_what_to_do(home: Path) -> None:
    base = free_ports(4)
    port = base + 2
    with socket.create_server(("127.0.0.1", port)):
        answer = run("up", "--nodes", "1", "--home", home, "--base-port", str(base))
    assert answer.exit_code == 1
    assert f"port {port} is in use" in answer.stderr
    assert "--base-port auto" in answer.stderr
    assert not home.exists()


def test_a_home_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    answer = run("up", "--nodes", "1", "--home", tmp_path / "file" / "net")
    assert answer.exit_code == 1
    assert "Not a directory" in answer.stderr
    assert "choose another --home" in answer.stderr
    assert isinstance(answer.exception, SystemExit)


def test_a_home_too_long_for_a_socket_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    answer = run("up", "--nodes", "1", "--home", home)
    assert answer.exit_code == 1
    assert "too long for a Unix socket" in answer.stderr
    assert not home.exists()


def test_a_folder_with_other_things_in_it_is_left_alone(home: Path) -> None:
    (home / "node0").mkdir(parents=True)
    (home / "node0" / "precious").write_text("keep me")
    answer = run("up", "--nodes", "2", "--home", home)
    assert answer.exit_code == 1
    assert "holds node0" in answer.stderr
    assert (home / "node0" / "precious").read_text() == "keep me"
    assert not (home / "node1").exists()


@pytest.mark.parametrize("command", ["status", "down", "logs"])
def test_commands_on_a_folder_without_a_network_say_how_to_start_one(tmp_path: Path, command: str) -> None:
    answer = run(command, "--home", tmp_path)
    assert answer.exit_code == 1
    assert "outerstep localnet up" in answer.stderr


@pytest.mark.network
def test_ctrl_c_leaves_no_process_and_the_same_chain_goes_on_afterwards(home: Path) -> None:
    process, below = start_up(home)
    assert len(below) >= 8, "two supervisors with three processes each"
    shown = json.loads(run("status", "--json", "--home", home).stdout)
    assert [node["healthy"] for node in shown["nodes"]] == [True, True]
    process.send_signal(signal.SIGINT)
    assert "nothing is left running" in finish(process)
    assert process.returncode == 0
    assert wait_gone(below, timeout_s=0) == []

    process, below = start_up(home)
    again = json.loads(run("status", "--json", "--home", home).stdout)
    assert again["chain_id"] == shown["chain_id"]
    assert min(node["height"] for node in again["nodes"]) >= max(node["height"] for node in shown["nodes"])
    answer = run("down", "--home", home)
    assert answer.exit_code == 0, answer.stderr
    assert wait_gone(below, timeout_s=0) == []
    finish(process)


@pytest.mark.network
def test_killing_up_itself_ends_its_nodes_too(home: Path) -> None:
    process, below = start_up(home)
    second = run("up", "--nodes", "2", "--home", home)
    assert second.exit_code == 1
    assert "is running in" in second.stderr
    process.kill()
    finish(process)
    assert wait_gone(below, timeout_s=GONE_S) == []


@pytest.mark.network
def test_a_node_that_cannot_start_stops_the_others_and_shows_its_last_words(home: Path) -> None:
    process, below = start_up(home)
    process.send_signal(signal.SIGINT)
    finish(process)
    assert wait_gone(below, timeout_s=0) == []
    broken = Path(load_state(home).nodes[1].home) / "config.toml"
    broken.write_text("moniker = 7\n")
    answer = run("up", "--nodes", "2", "--home", home)
    assert answer.exit_code == 1
    assert "node1 ended with code" in answer.stderr
    assert "moniker is 7" in answer.stderr
    supervisors = [node.supervisor for node in load_state(home).nodes]
    assert supervisors == [None, None]
