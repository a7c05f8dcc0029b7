"""The homes of a local network's nodes: keys, configuration, and one genesis in each.

They are ordinary node homes: docs/localnet.md says how the same homes run on several machines.
"""

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from abci_app.params import Params
from localnet.ports import PORTS_PER_NODE, ports_of
from localnet.processes import ProcessName
from localnet.state import STATE_FILE, NetworkState, NodeState, load_state
from node.config import LOOPBACK, NetworkConfig, ports_from
from node.engine_files import MAX_SOCKET_PATH_BYTES, SOCKET_NAME
from node.errors import SetupError
from node.genesis import install_genesis, make_genesis
from node.init import NodeIdentity, connect_peers, init_node
from node.keys import write_key
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import PrivateKey, format_address

FAUCET_NAME: Final = "faucet.json"
FAUCET_TOKENS: Final = 1_000_000
ANY_ADDRESS: Final = "0.0.0.0"
OPERATOR_TOKENS: Final = 1_000
"""Given to each node's operator for fees."""


class HomesError(Exception):
    """The folder cannot hold this network; the text says why and what to do."""


def existing_network(home: Path) -> NetworkState | None:
    """The network that `home` was made for; None when it holds none.

    Raises: StateError when its state file is not readable.
    """
    return load_state(home) if (home / STATE_FILE).exists() else None


def create_homes(home: Path, *, nodes: int, base_port: int, params: Params | None = None) -> NetworkState:
    """Make `nodes` homes below `home` for this machine: new keys, a faucet account, one genesis that names them all.

    Raises: HomesError when the folder is in use for something else or cannot be written; nothing is left then.
    """
    networks = [ports_from(base_port + PORTS_PER_NODE * index) for index in range(nodes)]
    made, identities, chain_id = _make(home, networks, params)
    return NetworkState(
        chain_id=chain_id,
        base_port=base_port,
        owner=ProcessName(pid=0, started=0.0),
        ready=False,
        faucet=str(home / FAUCET_NAME),
        nodes=tuple(
            _node_state(index, folder, identity, base_port)
            for index, (folder, identity) in enumerate(zip(made, identities, strict=True))
        ),
    )


def create_homes_for(home: Path, hosts: Sequence[str], base_port: int) -> list[Path]:
    """Make one home for each of several machines, reached by the others at `hosts`; each uses the same ports.

    Raises: HomesError as `create_homes`, and for a host that is named twice or is no host name.
    """
    if len(set(hosts)) != len(hosts):
        raise HomesError("a host is named twice; several nodes of one machine are what `outerstep localnet up` is for")
    try:
        networks = [ports_from(base_port, host=host, bind=ANY_ADDRESS) for host in hosts]
    except SetupError as error:
        raise HomesError(str(error)) from error
    return _make(home, networks, None)[0]


def _make(
    home: Path, networks: Sequence[NetworkConfig], params: Params | None
) -> tuple[list[Path], list[NodeIdentity], str]:
    """Homes, what they say of themselves, and the chain id."""
    _check_folder(home, len(networks))
    made = [home / f"node{index}" for index in range(len(networks))]
    chain_id = f"localnet-{secrets.token_hex(4)}"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        faucet = PrivateKey.generate()
        write_key(home / FAUCET_NAME, faucet)
        identities = [
            init_node(folder, moniker=folder.name, network=network)
            for folder, network in zip(made, networks, strict=True)
        ]
        _install(made, identities, faucet, chain_id, params)
    except (SetupError, OSError) as error:
        for folder in (*made, home / FAUCET_NAME):
            _remove(folder)
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise HomesError(f"cannot make a network in {home}: {reason}; choose another --home") from error
    return made, identities, chain_id


def _remove(path: Path) -> None:
    if path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _check_folder(home: Path, nodes: int) -> None:
    socket = home / f"node{nodes - 1}" / SOCKET_NAME
    if len(bytes(socket)) > MAX_SOCKET_PATH_BYTES:
        raise HomesError(
            f"{socket} is too long for a Unix socket ({len(bytes(socket))} bytes; at most {MAX_SOCKET_PATH_BYTES}); "
            "choose a shorter --home"
        )
    taken = [name for name in (FAUCET_NAME, *(f"node{i}" for i in range(nodes))) if (home / name).exists()]
    if taken:
        raise HomesError(f"{home} holds {taken[0]} but no {STATE_FILE}; choose another --home or remove the folder")


def _install(
    folders: list[Path], identities: list[NodeIdentity], faucet: PrivateKey, chain_id: str, params: Params | None
) -> None:
    accounts = {identity.operator: OPERATOR_TOKENS * MICRO_PER_TOKEN for identity in identities}
    accounts[faucet.address] = FAUCET_TOKENS * MICRO_PER_TOKEN
    genesis = make_genesis(identities, accounts, params, chain_id=chain_id)
    for folder in folders:
        install_genesis(folder, genesis)
        connect_peers(folder, identities)


def _node_state(index: int, folder: Path, identity: NodeIdentity, base_port: int) -> NodeState:
    ports = ports_of(base_port, index)
    return NodeState(
        index=index,
        name=folder.name,
        home=str(folder),
        operator=format_address(identity.operator),
        url=identity.url,
        engine_url=f"http://{LOOPBACK}:{ports.rpc}",
        p2p_port=ports.p2p,
    )
