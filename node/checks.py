"""What is looked at before a node starts, so that it fails with one clear sentence instead of half-way."""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from node.config import NodeConfig, split_address
from node.engine_files import GENESIS_NAME
from node.errors import SetupError
from node.genesis import check_genesis

LOCK_NAME: Final = "run/node.lock"
WRITTEN_FOLDERS: Final = ("run", "logs", "data", "cometbft/config", "cometbft/data")


@contextmanager
def single_instance(home: Path) -> Iterator[None]:
    """Hold the home's lock; the kernel frees it whatever happens to this process.

    Raises: SetupError when another node runs in this home.
    """
    path = home / LOCK_NAME
    try:
        lock = path.open("a+")
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise SetupError(f"a node runs in {home} already (process {lock.read().strip()})") from error
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def check_paths(home: Path) -> None:
    """Every folder that the node writes to exists and can be written.

    Raises: SetupError with the folder and the reason.
    """
    for name in WRITTEN_FOLDERS:
        folder = home / name
        probe = folder / f".probe-{os.getpid()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe.write_bytes(b"x" * 4096)
            probe.unlink()
        except OSError as error:
            hint = {errno.ENOSPC: "free some space", errno.EROFS: "it is mounted read-only"}.get(
                error.errno or 0, "check its owner and mode"
            )
            raise SetupError(f"cannot write in {folder}: {error.strerror} ({hint})") from error


def check_genesis_file(home: Path) -> str:
    """The chain id of the home's genesis.

    Raises: SetupError when it is missing or wrong.
    """
    path = home / GENESIS_NAME
    try:
        return check_genesis(path.read_bytes())
    except FileNotFoundError as error:
        raise SetupError(
            f"there is no {path}; copy the network's genesis there (docs/running.md says how one is made)"
        ) from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def check_ports(config: NodeConfig) -> None:
    """Every port that the node listens on is free.

    Raises: SetupError naming field, port and, where the system tells, the process that holds it.
    """
    for name in ("p2p", "engine_rpc", "services", "engine_metrics"):
        address = getattr(config.network, name)
        if not address:
            continue
        host, port = split_address(address, name=f"network.{name}")
        try:
            _try_to_listen(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"is taken{_holder_of(port)}; stop that, or choose another port in config.toml"
            else:
                reason = f"cannot be used: {error.strerror or error}"
            raise SetupError(f"network.{name}: {address} {reason}") from error


def _try_to_listen(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


def _holder_of(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())[:80]
                return f" by process {connection.pid} ({command})"
    except psutil.Error:
        return ""
    return ""
