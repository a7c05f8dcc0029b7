"""What is kept in memory of the database, for reading."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

K = TypeVar("K")

NOT_KEPT: Final = b"not kept"
"""Stands for a value that has to be read; told from values by identity."""
OVERHEAD_BYTES: Final = 64
"""What keeping one value costs besides its bytes, roughly."""


class ReadCache(Generic[K]):
    """Some values of one state, None for what is known not to be there. Bounded in bytes.

    A look into LevelDB lets other threads take the GIL, which under load costs more than the look itself. The values
    stand in two generations: the young one is this object's own; the old one is shared with the caches of other states
    and never changes. When the young one is half full it becomes the old one of the next state. So a block more costs a
    copy of the young one at the most. Several threads may use it at a time: the worst that happens is that a value is
    read twice.
    """

    def __init__(self, limit_bytes: int, value_limit_bytes: int) -> None:
        """`limit_bytes`: of the values of one generation. Larger ones than `value_limit_bytes` are not kept."""
        self._young: dict[K, bytes | None] = {}
        self._young_bytes = 0
        self._old: dict[K, bytes | None] = {}
        self._limit_bytes, self._value_limit_bytes = limit_bytes, value_limit_bytes

    def find(self, key: K) -> bytes | None:
        """The value, or NOT_KEPT."""
        try:
            return self._young[key]
        except KeyError:
            return self._old.get(key, NOT_KEPT)

    def keep(self, key: K, value: bytes | None) -> bool:
        """Keep a value that was read, if there is room; whether there was."""
        size = OVERHEAD_BYTES + len(value or b"")
        if size > OVERHEAD_BYTES + self._value_limit_bytes or self._young_bytes + size > self._limit_bytes:
            return False
        self._young[key] = value
        self._young_bytes += size
        return True

    def after(self, writes: Mapping[K, bytes | None]) -> "ReadCache[K]":
        """What is known of the state that `writes` make of this one."""
        later = ReadCache[K](self._limit_bytes, self._value_limit_bytes)
        if self._young_bytes > self._limit_bytes // 2:
            later._old = self._young
        else:
            later._young, later._young_bytes, later._old = self._young.copy(), self._young_bytes, self._old
        for key, value in writes.items():
            later._forget(key)
            if not later.keep(key, value) and key in later._old:
                later._young[key] = NOT_KEPT  # hides what stood there before
        return later

    def _forget(self, key: K) -> None:
        value = self._young.pop(key, NOT_KEPT)
        if value is not NOT_KEPT:
            self._young_bytes -= OVERHEAD_BYTES + len(value or b"")
