"""Files of the row store: durable writes, directories that appear and vanish in one step, the list of pruned blobs.

PATH/blobs/<expiry height, 20 digits>/<commitment>-<start of the promise's digest>/manifest, rows
PATH/pending/        what is being written or deleted; emptied at start
PATH/pruned          48 bytes for each pruned blob: commitment, expiry height, height of pruning
"""

import os
import secrets
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from da_layer.wire import ProvenRow, SignedPromise
from primitives.encoding import EncodingError, decode, encode
from primitives.merkle import MerkleProof

_PRUNED_RECORD: Final = struct.Struct(">32sQQ")


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known about a directory's rows; row j of the file `rows` is row `indices[j]` of the blob."""

    signed: SignedPromise
    indices: tuple[int, ...]
    proofs: tuple[MerkleProof, ...]


@dataclass(frozen=True, slots=True)
class Pruned:
    """A blob that was held here once."""

    expiry_height: int
    pruned_height: int


class StoreFiles:
    """All file operations of a RowStore. Methods raise OSError where the operating system does."""

    def __init__(self, path: Path) -> None:
        self._blobs = path / "blobs"
        self._pending = path / "pending"
        self._pruned = path / "pruned"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._pending.mkdir(exist_ok=True)
        for leftover in self._pending.iterdir():
            _remove(leftover)

    def directory_of(self, signed: SignedPromise) -> Path:
        promise = signed.promise
        name = f"{promise.header.commitment.hex()}-{promise.digest.hex()[:16]}"
        return self._blobs / f"{promise.expiry_height:020d}" / name

    def write(self, manifest: Manifest, rows: Iterable[bytes]) -> Path:
        """A directory under pending/, complete and on disk, for `publish` or `discard`."""
        directory = Path(tempfile.mkdtemp(dir=self._pending))
        try:
            _write_durably(directory / "manifest", [encode(manifest)])
            _write_durably(directory / "rows", rows)
            _sync_directory(directory)
        except BaseException:
            self.discard(directory)
            raise
        return directory

    def publish(self, pending: Path, signed: SignedPromise) -> None:
        """Make a written directory part of the store, at once and for good."""
        target = self.directory_of(signed)
        if not target.parent.exists():
            target.parent.mkdir()
            _sync_directory(self._blobs)
        os.rename(pending, target)
        _sync_directory(target.parent)

    def repair(self, manifest: Manifest, rows: Iterable[ProvenRow], row_size: int) -> None:
        """Write damaged rows again where they stand; readers verify, so a crash half-way does no harm."""
        directory = self.directory_of(manifest.signed)
        _write_durably(directory / "manifest.new", [encode(manifest)])
        os.replace(directory / "manifest.new", directory / "manifest")
        descriptor = os.open(directory / "rows", os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "r+b") as file:
            for row in rows:
                file.seek(manifest.indices.index(row.index) * row_size)
                file.write(row.data)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(directory)

    def discard(self, directory: Path) -> None:
        """Take a directory out of the store in one step, then delete it."""
        if directory.parent != self._pending:
            # By rename alone: a full disk may have no room for a new directory.
            grave = self._pending / secrets.token_hex(12)
            os.rename(directory, grave)
            _sync_directory(directory.parent)
            directory = grave
        _remove(directory)

    def expiry_directories(self) -> Iterator[tuple[int, Path]]:
        """(expiry height, directory), lowest first. Names that are not heights are not ours and are left alone."""
        for directory in sorted(self._blobs.iterdir()):
            if directory.name.isascii() and directory.name.isdecimal():
                yield int(directory.name), directory

    def read_manifest(self, directory: Path) -> Manifest | None:
        """The manifest, or None when it is missing, damaged or stands in the wrong place."""
        try:
            manifest = decode((directory / "manifest").read_bytes(), Manifest)
        except (FileNotFoundError, NotADirectoryError, EncodingError):
            return None
        if self.directory_of(manifest.signed) != directory or len(manifest.indices) != len(manifest.proofs):
            return None
        return manifest

    def read_row(self, directory: Path, position: int, row_size: int) -> bytes:
        """Row number `position` of a directory's file; shorter than `row_size` when the file is."""
        with open(directory / "rows", "rb") as file:
            return os.pread(file.fileno(), row_size, position * row_size)

    def append_pruned(self, blobs: Iterable[tuple[bytes, Pruned]]) -> None:
        records = [_PRUNED_RECORD.pack(name, was.expiry_height, was.pruned_height) for name, was in blobs]
        with open(self._pruned, "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                rest = memoryview(b"".join(records))
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), before)  # half a record would put all later ones out of step
                raise

    def read_pruned(self) -> dict[bytes, Pruned]:
        """Commitment -> when. Cuts off a last record that a crash left half-written."""
        if not self._pruned.exists():
            return {}
        data = self._pruned.read_bytes()
        whole = len(data) - len(data) % _PRUNED_RECORD.size
        if whole != len(data):
            os.truncate(self._pruned, whole)
        return {name: Pruned(expiry, height) for name, expiry, height in _PRUNED_RECORD.iter_unpack(data[:whole])}


def _write_durably(path: Path, pieces: Iterable[bytes]) -> None:
    with open(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
