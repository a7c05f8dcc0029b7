"""Troubles in which a chain's processes live on and do nothing: a full disk, and an engine that has given up.

CometBFT stops taking part in consensus for good when it cannot write (its log says CONSENSUS FAILURE), and does not
begin with it when its state sync fails, while its process lives and its RPC answers; so both are looked for from
outside, and the chain is stopped and started again.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
MIN_FREE_BYTES: Final = 32 * MIB
"""With less than this the chain is stopped, in order, before a write fails in the middle."""
ENOUGH_FREE_BYTES: Final = 48 * MIB
"""With this much it goes on."""
HALTS: Final[Mapping[bytes, str]] = {
    b"CONSENSUS FAILURE!!!": "the engine's consensus has died",
    b"State sync failed": "the engine's state sync has failed",
}
"""What CometBFT says before it lives on and does nothing, in words that it says nowhere else."""
MOST_READ_BYTES: Final = 4 * MIB


class DiskRoom:
    """Whether the disk under `folder` has room for a running chain."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._full = False

    def __call__(self) -> str | None:
        """Why the chain cannot run now; None when it can. Once it is full, ENOUGH_FREE_BYTES end that."""
        wanted = ENOUGH_FREE_BYTES if self._full else MIN_FREE_BYTES
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            return f"{self._folder} cannot be read: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        self._full = free < wanted
        if not self._full:
            return None
        return f"the disk of {self._folder} is full ({free // MIB} MiB left); it goes on at {ENOUGH_FREE_BYTES // MIB}"


class EngineHalt:
    """Whether CometBFT has said since the last look that it does nothing any more."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._place = _size(log)
        self._tail = b""
        """The end of what was read last, in case the words came in two parts."""

    def __call__(self) -> str | None:
        """Its own words say so: a reason; else None."""
        size = _size(self._log)
        if size < self._place:
            self._place = 0
        start = max(self._place, size - MOST_READ_BYTES)
        try:
            with self._log.open("rb") as file:
                file.seek(start)
                news = self._tail + file.read(size - start)
        except OSError:
            return None
        self._place = size
        reason = next((reason for words, reason in HALTS.items() if words in news), None)
        self._tail = b"" if reason else news[-max(map(len, HALTS)) + 1 :]
        return f"{reason}, see {self._log}" if reason else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
