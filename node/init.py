"""Making a node's home: folders, keys, configuration; and what others need to know of it.

DIR/config.toml   DIR/keys/{operator,service}.json   DIR/cometbft   DIR/data   DIR/run   DIR/logs
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from node.config import ConsensusConfig, NetworkConfig, NodeConfig, load_config, save_config, split_address
from node.engine_files import consensus_key, make_engine_home, node_id
from node.errors import SetupError
from node.keys import key_address, public_key, write_key
from primitives.keys import PrivateKey

OPERATOR_KEY: Final = "keys/operator.json"
SERVICE_KEY: Final = "keys/service.json"


class NodeIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The public face of a node: what genesis and its peers need. `node.jsonform` gives its JSON."""

    moniker: str
    operator: bytes
    """Account address, 20 bytes."""
    consensus_key: bytes
    """Ed25519, 32 bytes."""
    service_key: bytes
    """x-only, 32 bytes."""
    url: str
    """Of its services."""
    peer: str
    """node-id@host:port."""


def init_node(
    home: Path,
    *,
    moniker: str = "node",
    network: NetworkConfig | None = None,
    consensus: ConsensusConfig | None = None,
    passphrase: str | None = None,
    operator: PrivateKey | None = None,
) -> NodeIdentity:
    """Make a node's home (mode 0700) with new keys; `network` is often `node.config.ports_from(base_port)`.

    With a passphrase both key files are sealed, and the node needs OUTERSTEP_PASSPHRASE to start. The node can run
    once a genesis is installed (`node.genesis.install_genesis`).

    Raises: SetupError when the folder holds something already or cannot be written.
    """
    config = NodeConfig(moniker=moniker, network=network or NetworkConfig(), consensus=consensus or ConsensusConfig())
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(home.iterdir()):
            raise SetupError(f"{home} is not empty; a new node needs a folder of its own")
        home.chmod(0o700)
        for name in ("keys", "data", "run", "logs"):
            (home / name).mkdir(mode=0o700)
    except OSError as error:
        raise SetupError(f"cannot make {error.filename or home}: {error.strerror}") from error
    write_key(home / OPERATOR_KEY, operator or PrivateKey.generate(), passphrase)
    write_key(home / SERVICE_KEY, PrivateKey.generate(), passphrase)
    make_engine_home(home)
    save_config(home, config)
    return read_identity(home)


def read_identity(home: Path) -> NodeIdentity:
    """The public face of the node in `home`; needs no passphrase.

    Raises: SetupError.
    """
    config = load_config(home)
    return NodeIdentity(
        moniker=config.moniker,
        operator=key_address(home / OPERATOR_KEY),
        consensus_key=consensus_key(home),
        service_key=public_key(home / SERVICE_KEY),
        url=config.network.public_url,
        peer=f"{node_id(home)}@{_reachable_p2p(config.network)}",
    )


def _reachable_p2p(network: NetworkConfig) -> str:
    """Where peers find the p2p port: as configured; for an address that listens everywhere, the host of public_url."""
    if network.external_p2p:
        return network.external_p2p
    host, port = split_address(network.p2p, name="network.p2p")
    if host in ("0.0.0.0", "::"):
        host = urlsplit(network.public_url).hostname or host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connect_peers(home: Path, nodes: Sequence[NodeIdentity]) -> None:
    """Name `nodes` (the node itself is left out) as persistent peers in DIR/config.toml.

    Raises: SetupError.
    """
    own = node_id(home)
    peers = tuple(node.peer for node in nodes if not node.peer.startswith(f"{own}@"))
    config = load_config(home)
    save_config(home, replace(config, network=replace(config.network, persistent_peers=peers)))
