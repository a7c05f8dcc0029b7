"""The configuration file: what init writes is what is read; whatever else stands there is refused by name."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config import ConfigError, NetworkConfig, NodeConfig, load_config, local_address, ports_from, save_config
from node.engine_files import consensus_address, engine_config
from node.errors import SetupError
from node.init import connect_peers, init_node, read_identity
from tests.node.conftest import Made

PEER = "ab" * 20 + "@10.0.0.2:26600"


def test_written_configuration_reads_back(tmp_path: Path) -> None:
    config = NodeConfig(moniker="a-1", network=NetworkConfig(persistent_peers=(PEER, PEER)))
    save_config(tmp_path, config)
    assert load_config(tmp_path) == config


def test_every_setting_has_a_comment_above_it(tmp_path: Path) -> None:
    save_config(tmp_path, NodeConfig())
    lines = (tmp_path / "config.toml").read_text().splitlines()
    settings = [number for number, line in enumerate(lines) if "=" in line and not line.startswith(("#", " "))]
    assert len(settings) > 15
    assert all(lines[number - 1].startswith("# ") for number in settings)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('moniker = "a b"', "moniker is 'a b'; it should be 1 to 40 letters"),
        ("moniker = 5", "moniker is 5; it should be a text"),
        ('log_level = "loud"', "log_level is 'loud'; it should be one of debug"),
        ("port = 5", "port is not a field; known here: consensus, disk"),
        ("network = 5", r"network should be a table: \[network\]"),
        ('[network]\np2p = "0.0.0.0"', "network.p2p is '0.0.0.0'; it should be host:port"),
        ('[network]\np2p = "0.0.0.0:70000"', "network.p2p"),
        ('[network]\np2p = "0.0.0.0:٣"', "network.p2p"),
        ('[network]\nservices = "0.0.0.0:26600"', "ports .* should all differ"),
        ('[network]\npublic_url = "ftp://x"', "network.public_url is 'ftp://x'"),
        ('[network]\npersistent_peers = ["x@y:1"]', "network.persistent_peers holds 'x@y:1'"),
        ("[network]\npersistent_peers = [1]", r"network.persistent_peers\[0\] is 1; it should be a text"),
        ('[network]\npersistent_peers = "x"', "it should be a list of texts"),
        ("[consensus]\ntimeout_commit_ms = 0", "consensus.timeout_commit_ms is 0; it should be 1 to"),
        ("[consensus]\ntimeout_commit_ms = true", "consensus.timeout_commit_ms is True; it should be a whole number"),
        ("[disk]\nda_budget_mib = 1.5", "disk.da_budget_mib is 1.5; it should be a whole number"),
        ("[limits]\nbatch = -1", "limits.batch is -1"),
        ("moniker =", "is not TOML"),
        ("\x00", "is not TOML"),
    ],
)
def test_wrong_setting_is_named_with_what_it_should_be(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config(tmp_path)


def test_missing_or_undecodable_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="outerstep node init"):
        load_config(tmp_path)
    (tmp_path / "config.toml").write_bytes(b"moniker = '\xff'")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_config(tmp_path)


@given(st.text())
def test_any_text_is_a_configuration_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    home = tmp_path_factory.mktemp("config")
    (home / "config.toml").write_bytes(text.encode(errors="surrogatepass"))
    problem = ""
    try:
        load_config(home)
    except ConfigError as error:
        problem = str(error)
    assert not problem or str(home) in problem


def test_new_home_belongs_to_its_owner_alone(made: Made) -> None:
    assert stat.S_IMODE(made.home.stat().st_mode) == 0o700
    secrets = [
        made.home / name
        for name in (
            "keys/operator.json",
            "keys/service.json",
            "cometbft/config/priv_validator_key.json",
            "cometbft/config/node_key.json",
        )
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


def test_home_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(SetupError, match="is not empty"):
        init_node(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_home_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SetupError, match=r"cannot make .*file"):
        init_node(tmp_path / "file" / "home")


def test_identity_is_the_same_each_time_it_is_read(made: Made) -> None:
    assert read_identity(made.home) == made.identity
    assert made.identity.peer.endswith("@127.0.0.1:40000")
    assert len(consensus_address(made.identity.consensus_key)) == 20


def test_peers_are_the_others_and_reach_the_engine(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("a", "b", "c")]
    nodes = [init_node(home, network=ports_from(40000 + 10 * i)) for i, home in enumerate(homes)]
    connect_peers(homes[0], nodes)
    config = load_config(homes[0])
    assert config.network.persistent_peers == (nodes[1].peer, nodes[2].peer)
    assert f'persistent_peers = "{nodes[1].peer},{nodes[2].peer}"' in engine_config(homes[0], config)


def test_node_that_listens_everywhere_is_found_at_its_public_host(tmp_path: Path) -> None:
    network = ports_from(40000, host="node1.example", bind="0.0.0.0")
    identity = init_node(tmp_path / "a", network=network)
    assert identity.url == "http://node1.example:40002"
    assert identity.peer.endswith("@node1.example:40000")
    plain = NetworkConfig(p2p="0.0.0.0:26600", public_url="http://10.1.1.1:26602")
    assert init_node(tmp_path / "b", network=plain).peer.endswith("@10.1.1.1:26600")


@pytest.mark.parametrize("base_port", [0, 1023, 65533])
def test_base_port_out_of_range_is_refused(base_port: int) -> None:
    with pytest.raises(ConfigError, match="base port"):
        ports_from(base_port)


@pytest.mark.parametrize(
    ("listens", "reached"),
    [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")],
)
def test_own_address_is_reachable(listens: str, reached: str) -> None:
    assert local_address(listens) == reached
