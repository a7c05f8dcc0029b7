"""The folder of a daemon (worker or scorer): one process at a time, and files that are whole or absent.

HOME/lock          held while a daemon runs here
HOME/owner.json    which chain, job and account the folder belongs to
HOME/data/         the data set
HOME/states/N/     shared and private state after settled round N, newest two
HOME/intents/      what was promised in rounds not settled yet
HOME/journal/      storage deals under way
HOME/status.json   for people and live tables
HOME/worker.log    structured log, one JSON object a line
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec

from node.files import write_atomically


class DaemonError(Exception):
    """A daemon cannot start or go on; the message says why and what to do."""


class HomeError(DaemonError):
    """The folder cannot be used."""


class HomeOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder is bound to from its first use on."""

    chain_id: str
    job_id: int
    account: str
    """`outer1…`."""


class DaemonHome:
    """A daemon's folder while it holds the lock; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> "DaemonHome":
        """Make the folder and take its lock.

        Raises: HomeError when the folder cannot be written or another process holds the lock.
        """
        try:
            for folder in (self.path, self.states, self.intents, self.journal, self.data):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+")
        except OSError as error:
            raise HomeError(
                f"cannot use {self.path}: {error.strerror}; name a folder you may write with --home"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise HomeError(
                f"{self.path} is in use by process {holder}; stop it first, or give this one its own --home and --key"
            ) from error
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def states(self) -> Path:
        return self.path / "states"

    @property
    def intents(self) -> Path:
        return self.path / "intents"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log_file(self) -> Path:
        return self.path / "worker.log"

    def bind(self, owner: HomeOwner) -> None:
        """Tie the folder to a chain, a job and an account, or check that it is tied to just these.

        Raises: HomeError when it belongs to others: their saved state must not be mixed.
        """
        path = self.path / "owner.json"
        if not path.exists():
            write_atomically(path, msgspec.json.encode(owner))
            return
        try:
            present = msgspec.json.decode(path.read_bytes(), type=HomeOwner)
        except msgspec.MsgspecError as error:
            raise HomeError(f"{path} is not readable ({error}); move {self.path} away and start again") from error
        if present != owner:
            raise HomeError(
                f"{self.path} belongs to job {present.job_id} on chain {present.chain_id!r} and account "
                f"{present.account}; name another folder with --home"
            )

    def write_status(self, fields: Mapping[str, Any]) -> None:
        """Replace status.json, atomically and without syncing (it is for display only)."""
        write_atomically(self.path / "status.json", json.dumps(fields).encode() + b"\n", sync=False)
