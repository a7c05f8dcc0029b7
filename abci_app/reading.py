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

    A look into LevelDB lets other threads take the GIL, which under load costs more than the look itself. Several
    threads may use it at a time: the worst that happens is that a value is read twice.
    """

    def __init__(self, limit_bytes: int, value_limit_bytes: int) -> None:
        """`limit_bytes`: of all values together. Larger values than `value_limit_bytes` are not kept."""
        self.values: dict[K, bytes | None] = {}
        """To look up in: ``values.get(key, NOT_KEPT)``."""
        self._limit_bytes, self._value_limit_bytes = limit_bytes, value_limit_bytes
        self._size_bytes = 0

    def keep(self, key: K, value: bytes | None) -> None:
        """Keep a value that was read, unless there is no room."""
        size = OVERHEAD_BYTES + len(value or b"")
        if size <= self._value_limit_bytes + OVERHEAD_BYTES and self._size_bytes + size <= self._limit_bytes:
            self.values[key] = value
            self._size_bytes += size

    def after(self, writes: Mapping[K, bytes | None]) -> "ReadCache[K]":
        """What is known of the state that `writes` make of this one. Begins anew when this one is nearly full."""
        later = ReadCache[K](self._limit_bytes, self._value_limit_bytes)
        if self._size_bytes <= self._limit_bytes // 8 * 7:
            later.values, later._size_bytes = self.values.copy(), self._size_bytes
        for key, value in writes.items():
            before = later.values.pop(key, NOT_KEPT)
            if before is not NOT_KEPT:
                later._size_bytes -= OVERHEAD_BYTES + len(before or b"")
            later.keep(key, value)
        return later
