"""When snapshots are taken, in a thread of their own, and what peers are told of them.

A snapshot that fails (a full disk, an I/O error) is a warning in the log: the chain goes on without it.
"""

import shutil
import threading
import time
from pathlib import Path
from typing import Final

import plyvel
import structlog

from abci_app.failpoints import reach
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.form import MAX_CHUNK_BYTES, SnapshotInvalid
from abci_app.snapshots.shelf import Shelf
from abci_app.snapshots.writing import PAUSE_S, Pace, Room, SnapshotStopped, SnapshotWrong, write_snapshot
from abci_app.store import CommittedState

RESERVE_BYTES: Final = 128 * 1024 * 1024
"""Free space that snapshots leave on the disk: the chain itself stops with too little."""

_log = structlog.get_logger()


class Snapshots:
    """Takes a snapshot at every `interval_blocks`-th height, keeps the newest `keep`, and serves them."""

    def __init__(
        self,
        folder: Path,
        *,
        interval_blocks: int,
        keep: int,
        max_chunk_bytes: int = MAX_CHUNK_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`interval_blocks` 0: none are taken. `max_chunk_bytes` is the same on all nodes of a chain.

        Raises: OSError when the folder cannot be used.
        """
        self._shelf = Shelf(folder, keep=keep)
        self._interval_blocks = interval_blocks
        self._max_chunk_bytes = max_chunk_bytes
        self._reserve_bytes = reserve_bytes
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def after_commit(self, state: CommittedState) -> None:
        """Begin one if it is time; one that is still being taken is not waited for, and none is begun beside it."""
        due = self._interval_blocks and state.height % self._interval_blocks == 0
        if not due or state.height in self._shelf:
            return
        if self._thread is not None and self._thread.is_alive():
            _log.warning("no snapshot, since the one before is not finished yet", height=state.height)
            return
        self._thread = threading.Thread(target=self._take, args=(state,), name="snapshot", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until none is being taken; False when the time is over."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def close(self) -> None:
        """Break off what is being taken. To be called before the store is closed."""
        self._stopping.set()
        self.wait()

    # --- for peers ----------------------------------------------------------------------------------------------
    def offers(self) -> list[pb.Snapshot]:
        """What can be had, newest first."""
        return [
            pb.Snapshot(
                height=found.height,
                format=found.format,
                chunks=len(found.chunk_bytes),
                hash=found.hash,
                metadata=found.metadata,
            )
            for found in self._shelf.manifests()
        ]

    def load_chunk(self, height: int, format: int, index: int) -> bytes:
        """One chunk; empty when there is none such."""
        return self._shelf.chunk(height, format, index)

    # --- in the thread ------------------------------------------------------------------------------------------
    def _take(self, state: CommittedState) -> None:
        partial, began = self._shelf.partial(state.height), time.monotonic()
        try:
            self._write(state, partial)
        except SnapshotStopped:
            _log.info("snapshot broken off", height=state.height)
        except SnapshotWrong as error:
            _log.error("no snapshot; check the database (--check)", height=state.height, reason=str(error))
        except (OSError, plyvel.Error, SnapshotInvalid) as error:
            _log.warning("no snapshot", height=state.height, reason=str(error))
        else:
            _log.info("snapshot taken", height=state.height, seconds=round(time.monotonic() - began, 2))
            return
        shutil.rmtree(partial, ignore_errors=True)

    def _write(self, state: CommittedState, partial: Path) -> None:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(mode=0o700)
        reach("snapshot.begin")
        room = Room(partial, self._reserve_bytes)
        pace = Pace(self._stopping.is_set, pause_s=self._pause_s)
        manifest = write_snapshot(state, partial, room, pace, max_chunk_bytes=self._max_chunk_bytes)
        reach("snapshot.written")
        self._shelf.add(manifest)
        reach("snapshot.end")
