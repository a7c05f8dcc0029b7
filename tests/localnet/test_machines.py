"""Homes made for several machines: copied elsewhere and started one by one, they form one network."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from localnet.cli import app
from localnet.health import wait_healthy
from localnet.homes import HomesError, create_homes_for
from localnet.ports import claim
from localnet.processes import spawn, stop_trees
from localnet.state import NodeState
from node.client import Client
from node.config import load_config
from node.engine_files import GENESIS_NAME
from node.init import read_identity

HOSTS = ["127.0.0.2", "127.0.0.3"]
"""Two addresses of the loopback network stand for two machines: the same ports are free on both."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="on-") as name:
        yield Path(name)


def test_each_home_knows_the_others_by_address_and_all_have_one_genesis(tmp_path: Path) -> None:
    hosts = ["10.0.0.1", "10.0.0.2", "node.example.org"]
    words = [word for host in hosts for word in ("--host", host)]
    answer = CliRunner().invoke(app, ["init", "--home", str(tmp_path / "net"), *words])
    assert answer.exit_code == 0, answer.stderr
    homes = [tmp_path / "net" / f"node{index}" for index in range(3)]
    assert len({(home / GENESIS_NAME).read_bytes() for home in homes}) == 1
    identities = [read_identity(home) for home in homes]
    assert [identity.url for identity in identities] == [f"http://{host}:26602" for host in hosts]
    for index, home in enumerate(homes):
        network = load_config(home).network
        assert network.services == "0.0.0.0:26602"
        assert network.engine_rpc == "127.0.0.1:26601"
        others = [identity.peer for number, identity in enumerate(identities) if number != index]
        assert list(network.persistent_peers) == others


@pytest.mark.parametrize("hosts", [["10.0.0.1", "10.0.0.1"], ["no host", "10.0.0.2"], [""]])
def test_hosts_that_cannot_be_are_refused_and_nothing_is_made(tmp_path: Path, hosts: list[str]) -> None:
    with pytest.raises(HomesError):
        create_homes_for(tmp_path / "net", hosts, 26600)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.network
async def test_copied_homes_form_one_network(folder: Path) -> None:
    with claim(None, 2) as port:
        made = create_homes_for(folder / "net", HOSTS, port)
        machines = []
        for host, home in zip(HOSTS, made, strict=True):
            machine = folder / host / home.name
            shutil.copytree(home, machine)
            config = machine / "config.toml"
            config.write_text(config.read_text().replace("0.0.0.0", host).replace('"127.0.0.1:', f'"{host}:'))
            machines.append(machine)
        shutil.rmtree(folder / "net")
        nodes = [_node(index, host, home, port) for index, (host, home) in enumerate(zip(HOSTS, machines, strict=True))]
        started = [
            spawn([Path(sys.executable).with_name("outerstep"), "node", "start", "--home", home], home / "out.log")
            for home in machines
        ]
        try:
            found = await wait_healthy(nodes, height=2, timeout_s=90, check=lambda: None)
            assert [health.peers for health in found] == [1, 1]
            async with Client(nodes[0].url) as client:
                services = await client.service_set()
            assert services is not None
            assert {member.url for member in services.members} == {node.url for node in nodes}
        finally:
            stop_trees(started)


def _node(index: int, host: str, home: Path, port: int) -> NodeState:
    return NodeState(
        index=index,
        name=home.name,
        home=str(home),
        operator="",
        url=f"http://{host}:{port + 2}",
        engine_url=f"http://{host}:{port + 1}",
        p2p_port=port,
    )
