"""The committed state on disk (LevelDB), its app hash, and the one synced batch that moves from height to height.

What stands in the database, by first byte of the key:

    s + state key          the value
    b + bucket, 2 bytes    the bucket's packed entries (see abci_app.proofs); missing when empty
    m                      Meta: layout, height, app hash
    r                      the height that was restored from a snapshot, where one was

A block never touches the database before Commit: `prepare` works out the next app hash in memory, `commit` writes it.
Readers (CheckTx, Query) hold a `CommittedState`, a LevelDB snapshot of one height, which later commits do not change.

A restored state (abci_app.snapshots.restoring) is a database of its own beside this one, at `restored_path`. It is used
from there at once, and takes the place of this one at the next start: so no database is moved while readers have it.
"""

import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import plyvel

from abci_app.files import sync_folder
from abci_app.proofs import ENTRY_BYTES, KeyProof, bucket_hash, bucket_index, find_entry
from abci_app.reading import NOT_KEPT, ReadCache
from abci_app.state import ReadableState
from abci_app.tree import BucketTree, TreeChange
from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import sha256

LAYOUT: Final = 2
"""Version of the database layout; another one is refused."""
MIB: Final = 1024 * 1024
_STATE: Final = b"s"
_BUCKET: Final = b"b"
_META: Final = b"m"
_RESTORED: Final = b"r"
_REPLAY_HINT: Final = "delete the application's data, and CometBFT replays it from the blocks"


class StoreError(Exception):
    """The database cannot be opened or used; the text says what to do."""


class StateCorrupted(StoreError):
    """What the database holds does not belong together. Nothing was changed."""


class Meta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the committed state stands. Written in the same batch as the state."""

    layout: int
    height: int
    app_hash: bytes


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """Everything that one block changes, worked out but not yet written."""

    height: int
    app_hash: bytes
    writes: Mapping[bytes, bytes | None]
    buckets: Mapping[int, bytes]
    """New packed entries of the changed buckets."""
    nodes: TreeChange


class CommittedState:
    """The state after one committed block; a `ReadableState` that never changes. Safe to read from several threads."""

    def __init__(self, snapshot: Any, height: int, app_hash: bytes, cache: "_Cache | None" = None) -> None:
        """`cache`: what is known of this state; becomes this object's own."""
        self._snapshot = snapshot
        self._cache = cache or _Cache()
        self.height = height
        """0 before the first commit."""
        self.app_hash = app_hash
        """Empty before the first commit."""

    def get(self, key: bytes) -> bytes | None:
        """See `abci_app.state.ReadableState`."""
        value = self._cache.values.find(key)
        if value is NOT_KEPT:
            value = self._snapshot.get(_STATE + key)
            self._cache.values.keep(key, value)
        return value

    def cache_after(self, prepared: PreparedCommit) -> "_Cache":
        """What is known of the state after this one."""
        return _Cache(self._cache.values.after(prepared.writes), self._cache.buckets.after(prepared.buckets))

    def iterate(self, prefix: bytes, *, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """See `abci_app.state.ReadableState`."""
        wanted = _STATE + prefix
        with self._snapshot.iterator(start=_STATE + max(prefix, start), include_start=True) as items:
            for key, value in items:
                if not key.startswith(wanted):
                    return
                yield key[1:], value

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """All items in key order, past LevelDB's cache: for whoever reads the whole state once."""
        with self._snapshot.iterator(prefix=_STATE, fill_cache=False) as items:
            for key, value in items:
                yield key[1:], value

    def bucket(self, index: int) -> bytes:
        """Packed entries of bucket `index`; empty bytes when it has none."""
        packed = self._cache.buckets.find(index)
        if packed is NOT_KEPT:
            packed = self._snapshot.get(_BUCKET + index.to_bytes(2, "big"))
            self._cache.buckets.keep(index, packed)
        return packed or b""


@dataclass(frozen=True, slots=True)
class _Cache:
    """Of one state."""

    values: ReadCache[bytes] = field(default_factory=lambda: ReadCache(4 * MIB, value_limit_bytes=512))
    buckets: ReadCache[int] = field(default_factory=lambda: ReadCache(64 * MIB, value_limit_bytes=16 * 1024))
    """Of a million accounts nearly all fit."""


class Store:
    """The only writer of one database. Opening takes LevelDB's lock, so a second opener is refused."""

    def __init__(self, path: Path) -> None:
        """Open or create the database in folder `path`.

        Raises: StoreError when the folder is in use, not writable, or of another layout; StateCorrupted when its
        buckets do not add up to the stored app hash.
        """
        _finish_restore(path)
        self.path = path
        self._db = _open_database(path)
        self._replaced: list[Any] = []
        """Databases that are not written any more, open while readers have them."""
        self._lock = threading.Lock()
        """Held while the committed height moves, and while a proof is put together."""
        try:
            self._load()
        except plyvel.Error as error:
            self.close()
            raise StateCorrupted(f"the database in {path} is damaged: {error}; {_REPLAY_HINT}") from error
        except StoreError:
            self.close()
            raise

    def _load(self) -> None:
        meta, restored = self._read_meta(), self._db.get(_RESTORED)
        self._restored_height = 0 if restored is None else int.from_bytes(restored, "big")
        self._committed = CommittedState(self._db.snapshot(), meta.height, meta.app_hash)
        self._tree = self._rebuild_tree()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database; snapshots handed out before can no longer be read."""
        for database in (self._db, *self._replaced):
            database.close()

    @property
    def committed(self) -> CommittedState:
        """The state after the last commit."""
        return self._committed

    @property
    def is_fresh_restore(self) -> bool:
        """Whether the state was restored from a snapshot and no block has been committed since."""
        return 0 < self._committed.height == self._restored_height

    def switch_to_restored(self) -> None:
        """Go on with the state at `restored_path(self.path)`. Readers keep what they began with.

        Raises: StoreError when it cannot be used.
        """
        database = _open_database(restored_path(self.path))
        with self._lock:
            self._replaced.append(self._db)
            self._db = database
            self._load()

    def prepare(self, height: int, writes: Mapping[bytes, bytes | None]) -> PreparedCommit:
        """The next app hash when `writes` (None deletes) are applied to the committed state. Writes nothing."""
        committed = self._committed
        by_bucket: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for key, value in writes.items():
            key_hash = sha256(key)
            by_bucket.setdefault(bucket_index(key_hash), []).append(
                (key_hash, None if value is None else sha256(value))
            )
        buckets: dict[int, bytes] = {}
        for index, entries in by_bucket.items():
            before = committed.bucket(index)
            after = _with_entries(before, entries)
            if after != before:
                buckets[index] = after
        nodes = self._tree.plan({index: bucket_hash(packed) for index, packed in buckets.items()})
        return PreparedCommit(height, self._tree.root_after(nodes), dict(writes), buckets, nodes)

    def commit(self, prepared: PreparedCommit) -> None:
        """Write `prepared` in one synced batch: after a crash either all of it is there or nothing.

        Raises: StoreError when it was prepared for a height that does not follow the committed one.
        """
        if prepared.height <= self._committed.height:
            raise StoreError(f"commit of height {prepared.height} after height {self._committed.height}")
        with self._lock:
            self._write(prepared)
            self._tree.apply(prepared.nodes)
            cache = self._committed.cache_after(prepared)
            self._committed = CommittedState(self._db.snapshot(), prepared.height, prepared.app_hash, cache)

    def prove(self, key: bytes) -> tuple[KeyProof, CommittedState]:
        """The proof of `key` (present or absent), and the state whose `app_hash` it is checked against."""
        with self._lock:
            committed = self._committed
            index = bucket_index(sha256(key))
            proof = KeyProof(key, committed.get(key), committed.bucket(index), self._tree.path(index))
            return proof, committed

    def check_integrity(self) -> int:
        """Hash the whole state again from its values and compare with the buckets and the app hash.

        Returns: how many keys the state holds.
        Raises: StateCorrupted naming the first bucket that differs.
        """
        count, entries = 0, dict[int, list[bytes]]()
        for key, value in self._committed.iterate(b""):
            key_hash = sha256(key)
            entries.setdefault(bucket_index(key_hash), []).append(key_hash + sha256(value))
            count += 1
        for index in range(1 << 16):
            if b"".join(sorted(entries.get(index, []))) != self._committed.bucket(index):
                raise StateCorrupted(
                    f"bucket {index} does not match the values of its keys; restore or replay the data"
                )
        return count

    def _read_meta(self) -> Meta:
        raw = self._db.get(_META)
        if raw is None:
            return Meta(LAYOUT, 0, b"")
        try:
            meta = decode(raw, Meta)
        except EncodingError as error:
            raise StateCorrupted(f"the record of height and app hash is damaged: {error}") from error
        if meta.layout != LAYOUT:
            raise StoreError(f"the data has layout {meta.layout}; this version reads layout {LAYOUT}")
        return meta

    def _rebuild_tree(self) -> BucketTree:
        tree = read_tree(self._db)
        wanted = self._committed.app_hash if self._committed.height else BucketTree().root
        if tree.root != wanted:
            raise StateCorrupted(
                f"the state of height {self._committed.height} hashes to {tree.root.hex()}, but its app hash is "
                f"{wanted.hex()}; {_REPLAY_HINT}"
            )
        return tree

    def _write(self, prepared: PreparedCommit) -> None:
        with self._db.write_batch(transaction=True, sync=True) as batch:
            for key, value in prepared.writes.items():
                _put(batch, _STATE + key, value)
            for index, packed in prepared.buckets.items():
                _put(batch, _BUCKET + index.to_bytes(2, "big"), packed or None)
            batch.put(_META, encode(Meta(LAYOUT, prepared.height, prepared.app_hash)))


def state_root(state: ReadableState) -> bytes:
    """The app hash of all of `state`, computed from scratch: the reference that the incremental one must equal."""
    by_bucket: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for key, value in state.iterate(b""):
        key_hash = sha256(key)
        by_bucket.setdefault(bucket_index(key_hash), []).append((key_hash, sha256(value)))
    tree = BucketTree()
    hashes = {index: bucket_hash(_with_entries(b"", entries)) for index, entries in by_bucket.items()}
    tree.apply(tree.plan(hashes))
    return tree.root


def read_tree(database: Any) -> BucketTree:
    """The tree over the buckets that stand in a database of this layout."""
    tree, hashes = BucketTree(), dict[int, bytes]()
    with database.iterator(prefix=_BUCKET) as items:
        for key, packed in items:
            hashes[int.from_bytes(key[1:], "big")] = bucket_hash(packed)
    tree.apply(tree.plan(hashes))
    return tree


def put_part(batch: Any, items: Iterable[tuple[bytes, bytes]], buckets: Mapping[int, bytes]) -> None:
    """Add a part of a restored state to a write batch: its items, and the packed entries of its buckets."""
    for key, value in items:
        batch.put(_STATE + key, value)
    for index, packed in buckets.items():
        batch.put(_BUCKET + index.to_bytes(2, "big"), packed)


def put_end(batch: Any, height: int, app_hash: bytes) -> None:
    """Add to a write batch what makes a restored state a committed one."""
    batch.put(_RESTORED, height.to_bytes(8, "big"))
    batch.put(_META, encode(Meta(LAYOUT, height, app_hash)))


def restored_path(path: Path) -> Path:
    """Where the restored state waits that takes the place of the database in `path`. Only a whole one is ever there."""
    return path.with_name(f"{path.name}.restored")


def _finish_restore(path: Path) -> None:
    """Put a restored state in its place; a crash in between is made up for at the next start.

    Raises: StoreError.
    """
    restored = restored_path(path)
    if not restored.exists():
        return
    _open_database(restored).close()  # not while another process works on it
    try:
        if path.exists():
            shutil.rmtree(path)
        os.rename(restored, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot put the restored state {restored} in place: {error}") from error


def _open_database(path: Path) -> Any:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return plyvel.DB(str(path), create_if_missing=True, bloom_filter_bits=10, lru_cache_size=64 * 1024 * 1024)
    except OSError as error:  # plyvel.IOError is an OSError
        if "already held" in str(error) or "temporarily unavailable" in str(error):
            raise StoreError(f"{path} is in use by another process (LevelDB lock)") from error
        raise StoreError(f"cannot open the database in {path}: {error}") from error
    except plyvel.Error as error:
        raise StateCorrupted(f"the database in {path} is damaged: {error}; {_REPLAY_HINT}") from error


def _put(batch: Any, key: bytes, value: bytes | None) -> None:
    if value is None:
        batch.delete(key)
    else:
        batch.put(key, value)


def _with_entries(packed: bytes, entries: list[tuple[bytes, bytes | None]]) -> bytes:
    """The bucket after each (key hash, value hash or None; each key once) took effect, still sorted.

    One pass, since whoever searches for keys of one bucket can make it as large as it pays for.
    """
    parts: list[bytes] = []
    done = 0
    for key_hash, value_hash in sorted(entries, key=itemgetter(0)):
        offset, found = find_entry(packed, key_hash)
        parts.append(packed[done:offset])
        if value_hash is not None:
            parts.append(key_hash + value_hash)
        done = offset + ENTRY_BYTES if found else offset
    parts.append(packed[done:])
    return b"".join(parts)
