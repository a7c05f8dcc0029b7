"""Which ports a local network uses, and whether they are free.

Node i of a network with base port B uses B+10i (p2p), B+10i+1 (CometBFT RPC), B+10i+2 (services) and B+10i+3 (CometBFT
metrics). A range is claimed with a lock file for as long as the network runs, so that two networks that start in the
same moment do not choose the same one.
"""

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_BASE_PORT: Final = 26600
PORTS_PER_NODE: Final = 10
PORTS_USED: Final = 4
LAST_AUTO_PORT: Final = 32000
"""Above it, systems hand out ports to outgoing connections by themselves."""


class PortError(Exception):
    """No usable ports; the text says which are taken and what to do."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    p2p: int
    rpc: int
    services: int
    metrics: int


def ports_of(base_port: int, index: int) -> NodePorts:
    """The four ports of node `index`."""
    first = base_port + PORTS_PER_NODE * index
    return NodePorts(p2p=first, rpc=first + 1, services=first + 2, metrics=first + 3)


def taken_ports(base_port: int, nodes: int) -> list[int]:
    """The ports of the range that something listens on already."""
    wanted = [base_port + PORTS_PER_NODE * i + used for i in range(nodes) for used in range(PORTS_USED)]
    return [port for port in wanted if not _is_free(port)]


@contextlib.contextmanager
def claim(base_port: int | None, nodes: int) -> Iterator[int]:
    """Hold a free range for as long as the block runs and give its base port; None searches for one.

    Raises: PortError when the range is out of bounds or taken, or none is free.
    """
    if base_port is not None:
        _check_bounds(base_port, nodes)
        with _lock(base_port, nodes) as ours:
            taken = taken_ports(base_port, nodes)
            if taken or not ours:
                raise PortError(_explain(base_port, nodes, taken))
            yield base_port
        return
    for candidate in range(DEFAULT_BASE_PORT, LAST_AUTO_PORT, PORTS_PER_NODE * nodes):
        with _lock(candidate, nodes) as ours:
            if ours and not taken_ports(candidate, nodes):
                yield candidate
                return
    raise PortError(f"no free range of ports for {nodes} nodes between {DEFAULT_BASE_PORT} and {LAST_AUTO_PORT}")


def _check_bounds(base_port: int, nodes: int) -> None:
    last = base_port + PORTS_PER_NODE * nodes - 1
    if base_port < 1024 or last > 65535:
        raise PortError(f"base port {base_port} with {nodes} nodes needs ports up to {last}; choose 1024 to 65535")


def _explain(base_port: int, nodes: int, taken: list[int]) -> str:
    what = "another local network is starting on this range"
    if taken:
        ports, are = ("port", "is") if len(taken) == 1 else ("ports", "are")
        what = f"{ports} {', '.join(map(str, taken))} {are} in use"
    return (
        f"{what}; {nodes} nodes from base port {base_port} need it. Stop what uses it (`outerstep localnet down` for "
        "another local network), or choose other ports with --base-port N or --base-port auto."
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _lock(base_port: int, nodes: int) -> Iterator[bool]:
    """Lock every ten of the range (so that ranges which overlap exclude each other); gives whether that worked."""
    folder = Path(tempfile.gettempdir()) / f"outerstep-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    first, last = base_port // PORTS_PER_NODE, (base_port + PORTS_PER_NODE * nodes - 1) // PORTS_PER_NODE
    with contextlib.ExitStack() as stack:
        for ten in range(first, last + 1):
            handle = stack.enter_context((folder / f"{ten}0").open("w"))
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
        yield True
