"""Writes the snapshot of one committed state into a folder: two passes, bounded memory, in slices.

The state is in the order of its keys and a snapshot in the order of their hashes. So the first pass spreads the items
over 256 files by the first byte of the hash and adds up what each bucket takes; the second reads one such file after
another, sorts it in memory, and appends to the chunks. A state of 1 GB needs about 10 MB of memory beside tables.
"""

import errno
import os
import shutil
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from abci_app.failpoints import reach
from abci_app.proofs import ARITY, NUM_BUCKETS, TREE_DEPTH, bucket_hash, bucket_index, node_hash
from abci_app.snapshots.form import (
    COUNT_BYTES,
    FORMAT,
    MAX_CHUNK_BYTES,
    Item,
    Metadata,
    choose_depth,
    encode_item,
    item_size,
    read_items,
)
from abci_app.snapshots.shelf import CHUNKS, Manifest
from abci_app.store import CommittedState
from primitives.hashing import sha256

NUM_SPILLS: Final = 256
WORK_S: Final = 0.002
"""How long the interpreter is held at a time, so that blocks beside do not wait for it."""
PAUSE_S: Final = 0.004
ITEMS_PER_LOOK: Final = 32
"""How many items pass between two looks at the clock."""
BYTES_PER_LOOK: Final = 4 * 1024 * 1024
"""How many bytes pass between two looks at the disk's free space."""


class SnapshotStopped(Exception):
    """The process is about to end."""


class SnapshotWrong(Exception):
    """What was read of the state does not lead to its app hash: the database or this code is damaged."""


class Pace:
    """Pauses between slices of work, and ends the work when told to."""

    def __init__(self, stopped: Callable[[], bool], *, pause_s: float = PAUSE_S) -> None:
        self._stopped = stopped
        self._pause_s = pause_s
        self._steps = 0
        self._began = time.monotonic()

    def step(self) -> None:
        """After each small piece of work.

        Raises: SnapshotStopped.
        """
        self._steps += 1
        if self._steps % ITEMS_PER_LOOK == 0 and time.monotonic() - self._began > WORK_S:
            if self._stopped():
                raise SnapshotStopped
            time.sleep(self._pause_s)
            self._began = time.monotonic()


class Room:
    """The disk under `folder`, of which the last `reserve_bytes` are not for snapshots."""

    def __init__(self, folder: Path, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._unchecked = BYTES_PER_LOOK

    def take(self, num_bytes: int) -> None:
        """Before `num_bytes` are written.

        Raises: OSError (ENOSPC) when too little is left.
        """
        self._unchecked += num_bytes
        if self._unchecked < BYTES_PER_LOOK:
            return
        self._unchecked = 0
        free = shutil.disk_usage(self._folder).free
        if free < self._reserve_bytes + BYTES_PER_LOOK:
            text = f"{free >> 20} MiB are free; the last {self._reserve_bytes >> 20} are not for snapshots"
            raise OSError(errno.ENOSPC, text, str(self._folder))


def write_snapshot(
    state: CommittedState, folder: Path, room: Room, pace: Pace, *, max_chunk_bytes: int = MAX_CHUNK_BYTES
) -> Manifest:
    """Write the chunks of `state` into `folder`, synced; nothing else is left there.

    Raises: OSError, SnapshotStopped, SnapshotWrong; SnapshotInvalid when a bucket is too large for a chunk.
    """
    with _Spills(folder / "spills") as spills:
        sizes, counts = array("Q", bytes(8 * NUM_BUCKETS)), array("Q", bytes(8 * NUM_BUCKETS))
        for item in state.scan():
            key_hash = sha256(item[0])
            bucket, size = bucket_index(key_hash), item_size(item)
            sizes[bucket] += size
            counts[bucket] += 1
            room.take(size)
            spills.put(key_hash[0], encode_item(item))
            pace.step()
        depth = choose_depth(sizes, max_chunk_bytes=max_chunk_bytes)
        with (folder / CHUNKS).open("wb") as file:
            hashes = _write_chunks(file, spills.sorted_items(pace), counts, depth, room, pace)
            file.flush()
            os.fsync(file.fileno())
    metadata = Metadata(depth, b"".join(_roots(hashes, depth, pace)))
    if metadata.app_hash() != state.app_hash:
        raise SnapshotWrong(f"the items of height {state.height} do not lead to its app hash {state.app_hash.hex()}")
    width = NUM_BUCKETS // ARITY**depth
    chunk_bytes = tuple(COUNT_BYTES + sum(sizes[first : first + width]) for first in range(0, NUM_BUCKETS, width))
    return Manifest(FORMAT, state.height, metadata.to_bytes(), chunk_bytes)


class _Spills:
    """Items on disk, spread by the first byte of their keys' hashes. Removed at the end, whatever happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = ExitStack()
        self._files: list[BinaryIO] = []

    def __enter__(self) -> "_Spills":
        self._folder.mkdir()
        for index in range(NUM_SPILLS):
            self._files.append(self._closing.enter_context((self._folder / str(index)).open("w+b")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._closing.close()
        finally:
            shutil.rmtree(self._folder)

    def put(self, index: int, data: bytes) -> None:
        self._files[index].write(data)

    def sorted_items(self, pace: Pace) -> Iterator[tuple[bytes, Item]]:
        """Every item with the hash of its key, in the order of the hashes."""
        for file in self._files:
            file.seek(0)
            found = []
            for item in read_items(memoryview(file.read())):
                found.append((sha256(item[0]), item))
                pace.step()
            found.sort()
            yield from found


def _write_chunks(
    file: BinaryIO,
    items: Iterator[tuple[bytes, Item]],
    counts: "array[int]",
    depth: int,
    room: Room,
    pace: Pace,
) -> list[bytes]:
    """Append all chunks to `file`; returns the hash of every bucket."""
    hashes = [bucket_hash(b"")] * NUM_BUCKETS
    width = NUM_BUCKETS // ARITY**depth
    by_bucket = groupby(items, key=lambda entry: bucket_index(entry[0]))
    bucket, group = next(by_bucket, (NUM_BUCKETS, iter(())))
    for first in range(0, NUM_BUCKETS, width):
        room.take(COUNT_BYTES)
        file.write(sum(counts[first : first + width]).to_bytes(COUNT_BYTES, "big"))
        while bucket < first + width:
            packed = bytearray()
            for key_hash, item in group:
                packed += key_hash + sha256(item[1])
                room.take(item_size(item))
                file.write(encode_item(item))
                pace.step()
            hashes[bucket] = bucket_hash(bytes(packed))
            bucket, group = next(by_bucket, (NUM_BUCKETS, iter(())))
        pace.step()
        reach("snapshot.chunk_written")
    return hashes


def _roots(nodes: list[bytes], depth: int, pace: Pace) -> list[bytes]:
    """The 16^depth roots above the bucket hashes `nodes`."""
    for _ in range(TREE_DEPTH - depth):
        above = []
        for index in range(0, len(nodes), ARITY):
            above.append(node_hash(b"".join(nodes[index : index + ARITY])))
            pace.step()
        nodes = above
    return nodes
