"""Finished snapshots on disk, as they are listed and served to peers.

FOLDER/<height>/manifest   what the snapshot is, and how long each chunk is
FOLDER/<height>/chunks     its chunks, one after another
FOLDER/<height>.partial    one that is being taken, or was when the process died
"""

import os
import shutil
import threading
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec
import structlog

from abci_app.files import sync_folder
from abci_app.snapshots.form import FORMAT, Metadata, SnapshotInvalid, snapshot_hash
from primitives.encoding import EncodingError, decode, encode

MANIFEST: Final = "manifest"
CHUNKS: Final = "chunks"
PARTIAL: Final = ".partial"

_log = structlog.get_logger()


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One finished snapshot."""

    format: int
    height: int
    metadata: bytes
    chunk_bytes: tuple[int, ...]
    """Length of each chunk."""

    @property
    def hash(self) -> bytes:
        return snapshot_hash(self.height, self.metadata)


class Shelf:
    """The snapshots in one folder. Safe to use from several threads."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        """What an earlier process left half-done is removed, and what cannot be read.

        Raises: OSError when the folder cannot be used.
        """
        self.folder = folder
        self._keep = keep
        self._lock = threading.Lock()
        self._held: dict[int, tuple[Manifest, list[int]]] = {}
        """By height: the manifest, and where each chunk begins."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if not self._take_in(path):
                _remove(path)
        self._prune()

    def manifests(self) -> list[Manifest]:
        """Newest first."""
        with self._lock:
            return [self._held[height][0] for height in sorted(self._held, reverse=True)]

    def chunk(self, height: int, format: int, index: int) -> bytes:
        """One chunk; empty when there is none such, or it cannot be read (a chunk itself is never empty)."""
        with self._lock:
            manifest, starts = self._held.get(height, (None, []))
        if manifest is None or format != manifest.format or not 0 <= index < len(starts):
            return b""
        wanted = manifest.chunk_bytes[index]
        try:
            with self._path(height).joinpath(CHUNKS).open("rb") as file:
                file.seek(starts[index])
                data = file.read(wanted)
        except OSError as error:
            _log.warning("a chunk of a snapshot cannot be read", height=height, chunk=index, reason=str(error))
            return b""
        return data if len(data) == wanted else b""

    def partial(self, height: int) -> Path:
        """Where the snapshot of `height` is to be made."""
        return self.folder / f"{height}{PARTIAL}"

    def add(self, manifest: Manifest) -> None:
        """Put the finished snapshot in `partial(height)` on the shelf, and remove those above the number to keep.

        Raises: OSError; the snapshot is not on the shelf then.
        """
        partial = self.partial(manifest.height)
        with (partial / MANIFEST).open("wb") as file:
            file.write(encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(partial)
        os.rename(partial, self._path(manifest.height))
        sync_folder(self.folder)
        self._register(manifest)
        self._prune()

    def __contains__(self, height: int) -> bool:
        with self._lock:
            return height in self._held

    def _take_in(self, path: Path) -> bool:
        """Whether a snapshot of ours lies at `path`; it is listed from then on."""
        if not path.name.isascii() or not path.name.isdigit():
            return False
        try:
            manifest = decode((path / MANIFEST).read_bytes(), Manifest)
            metadata = Metadata.from_bytes(manifest.metadata)
            size = (path / CHUNKS).stat().st_size
        except (OSError, EncodingError, SnapshotInvalid) as error:
            _log.warning("a snapshot is dropped, since it cannot be read", path=str(path), reason=str(error))
            return False
        whole = len(manifest.chunk_bytes) == metadata.num_chunks and sum(manifest.chunk_bytes) == size
        if not whole or manifest.format != FORMAT or path.name != str(manifest.height):
            _log.warning("a snapshot is dropped, since it is not whole", path=str(path))
            return False
        self._register(manifest)
        return True

    def _register(self, manifest: Manifest) -> None:
        starts = [0, *accumulate(manifest.chunk_bytes)][:-1]
        with self._lock:
            self._held[manifest.height] = manifest, starts

    def _prune(self) -> None:
        with self._lock:
            old = sorted(self._held, reverse=True)[self._keep :]
            for height in old:
                del self._held[height]
        for height in old:
            _remove(self._path(height))

    def _path(self, height: int) -> Path:
        return self.folder / str(height)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("cannot be removed", path=str(path), reason=str(error))
