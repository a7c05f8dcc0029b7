"""One line on stderr that says what goes on; results go to stdout."""

import sys
import time
from typing import Final

EVERY_S: Final = 0.5
"""Rarely enough that it takes nothing from what is measured."""


class Progress:
    """Rewrites its line on a terminal; elsewhere each piece of work is told once, when it begins."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._told = ""
        self._next_s = 0.0

    def tell(self, text: str, share: float = 0.0) -> None:
        """`share` of `text` is done, 0 to 1."""
        if not self._is_terminal:
            if text != self._told:
                print(text, file=sys.stderr, flush=True)
        elif text != self._told or time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            print(f"\r\x1b[K{text} {share:4.0%}", end="", file=sys.stderr, flush=True)
        self._told = text

    def clear(self) -> None:
        """Make room for a result."""
        if self._is_terminal and self._told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._told = ""
