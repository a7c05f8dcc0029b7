"""HOME/localnet.json: what a local network consists of, so that other commands find it."""

from pathlib import Path
from typing import Final

import msgspec

from localnet.processes import ProcessName
from node.files import write_atomically

STATE_FILE: Final = "localnet.json"


class StateError(Exception):
    """There is no local network here, or its state file cannot be used."""


class NodeState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of the network."""

    index: int
    name: str
    home: str
    operator: str
    """Account address of its validator, `outer1…`."""
    url: str
    """Base address of its services."""
    engine_url: str
    """CometBFT's own RPC."""
    p2p_port: int
    supervisor: ProcessName | None = None
    """None while the node is stopped."""


class NetworkState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole network, as its `up` last wrote it."""

    chain_id: str
    base_port: int
    owner: ProcessName
    """The process that runs `up`; ending it ends the network."""
    ready: bool
    """All nodes answered and made blocks."""
    faucet: str
    """Path of the key of the account that holds the free tokens."""
    nodes: tuple[NodeState, ...]


def save_state(home: Path, state: NetworkState) -> None:
    """Write the state file whole or not at all."""
    write_atomically(home / STATE_FILE, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")


def load_state(home: Path) -> NetworkState:
    """Raises: StateError when there is no state file or it does not parse."""
    path = home / STATE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=NetworkState)
    except FileNotFoundError as error:
        raise StateError(
            f"no local network in {home} (no {STATE_FILE}); start one with `outerstep localnet up`"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise StateError(f"{path} cannot be read: {error}; remove it once nothing runs any more") from error
