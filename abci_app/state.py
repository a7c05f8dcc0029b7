"""State as the rules see it: ordered keys to bytes, with branches that either land whole or leave no trace.

`CommittedState` (abci_app.store) is what LevelDB holds; a `Branch` is a layer of writes over it or over another
branch. Handlers write to a branch made for their transaction; a refused transaction's branch is dropped.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Final, Protocol

_UNTOUCHED: Final = b"untouched"
"""Stands for a key that was not written; told from values by identity."""


class ReadableState(Protocol):
    """Anything that keys can be read from."""

    def get(self, key: bytes) -> bytes | None:
        """The value under `key`, or None."""

    def iterate(self, prefix: bytes, *, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Items whose key begins with `prefix`, from `start` (inclusive) on, in key order."""


class Branch:
    """Writes over `parent`, visible to reads at once, seen by nobody else until `merge_into`."""

    def __init__(self, parent: ReadableState) -> None:
        self._parent = parent
        self._writes: dict[bytes, bytes | None] = {}
        self._keys_by_table: dict[bytes, set[bytes]] | None = None
        """Written keys by what stands before their first slash: a walk through one table looks at no others. Made when
        the first walk begins; most branches live for one transaction and see none."""

    @property
    def writes(self) -> dict[bytes, bytes | None]:
        """Key to new value, None for deleted keys."""
        return self._writes

    def get(self, key: bytes) -> bytes | None:
        written = self._writes.get(key, _UNTOUCHED)
        return self._parent.get(key) if written is _UNTOUCHED else written

    def set(self, key: bytes, value: bytes) -> None:
        self._write(key, value)

    def delete(self, key: bytes) -> None:
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> None:
        if self._keys_by_table is not None and key not in self._writes:
            self._keys_by_table.setdefault(_table_of(key), set()).add(key)
        self._writes[key] = value

    def _written_keys(self, table: bytes) -> Iterable[bytes]:
        if self._keys_by_table is None:
            self._keys_by_table = {}
            for key in self._writes:
                self._keys_by_table.setdefault(_table_of(key), set()).add(key)
        return self._keys_by_table.get(table, ())

    def iterate(self, prefix: bytes, *, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """See `ReadableState`. Writes made while iterating are not seen by the iteration."""
        first = max(prefix, start)
        table, slash, _ = prefix.partition(b"/")
        written_keys = self._written_keys(table) if slash else self._writes
        own = sorted((k, self._writes[k]) for k in written_keys if k.startswith(prefix) and k >= first)
        hidden = {k for k, _ in own}
        below = ((k, v) for k, v in self._parent.iterate(prefix, start=start) if k not in hidden)
        written = ((k, v) for k, v in own if v is not None)
        return merge(below, written)

    def merge_into(self, target: "Branch") -> None:
        """Apply these writes to `target` (the parent branch)."""
        if target._keys_by_table is None:
            target._writes.update(self._writes)
            return
        for key, value in self._writes.items():
            target._write(key, value)


def _table_of(key: bytes) -> bytes:
    return key.partition(b"/")[0]


class MemoryState:
    """A `ReadableState` over a dict, for tests and as the empty state before genesis."""

    def __init__(self, items: dict[bytes, bytes] | None = None) -> None:
        self.items: dict[bytes, bytes] = dict(items or {})

    def get(self, key: bytes) -> bytes | None:
        return self.items.get(key)

    def iterate(self, prefix: bytes, *, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((k, v) for k, v in self.items.items() if k.startswith(prefix) and k >= start))

    def apply(self, branch: Branch) -> None:
        for key, value in branch.writes.items():
            if value is None:
                self.items.pop(key, None)
            else:
                self.items[key] = value
