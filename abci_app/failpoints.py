"""Named places where the process can be made to die at once, as by SIGKILL: how tests reach every window of a crash.

OUTERSTEP_FAIL_POINT="commit.written" dies the first time that place is reached, "commit.written:3" the third time.
Without that variable a place costs one look at a counter that is None.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "OUTERSTEP_FAIL_POINT"

FAIL_POINTS: Final = (
    "init_chain.begin",
    "init_chain.end",
    "finalize_block.begin",
    "finalize_block.executed",
    "finalize_block.end",
    "commit.begin",
    "commit.written",
    "commit.end",
    "snapshot.begin",
    "snapshot.chunk_written",
    "snapshot.written",
    "snapshot.end",
    "restore.begin",
    "restore.chunk_applied",
    "restore.complete",
    "restore.renamed",
    "restore.end",
)
"""Every place, in the order of one block; the snapshot and restore ones are reached in state sync only."""


class UnknownFailPoint(ValueError):
    """The variable names no place."""


class _Armed:
    """The place to die at, and how many times it must still be reached."""

    def __init__(self, name: str, remaining: int) -> None:
        self.name = name
        self.remaining = remaining


_armed: _Armed | None = None


def arm(setting: str | None) -> None:
    """Choose the place to die at: ``name`` or ``name:count``; None or "" for none.

    Raises: UnknownFailPoint.
    """
    global _armed
    if not setting:
        _armed = None
        return
    name, _, count = setting.partition(":")
    if name not in FAIL_POINTS or not (count or "1").isdigit() or int(count or 1) < 1:
        raise UnknownFailPoint(
            f"{VARIABLE} is {setting!r}; it should be one of {', '.join(FAIL_POINTS)}, or NAME:COUNT"
        )
    _armed = _Armed(name, int(count or 1))


def reach(name: str) -> None:
    """Say that this place is reached; the process ends here when it was armed for it."""
    if _armed is None or _armed.name != name:
        return
    _armed.remaining -= 1
    if _armed.remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
