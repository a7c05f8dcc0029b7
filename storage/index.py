"""Which segments of which files are on disk: kept in memory, rebuilt from the directory at start.

Layout below the store's directory (docs/storage.md):

    files/<root, 64 hex digits>/head                         canonical [size, merkle root]; hashes to <root>
    files/<root>/deals/<id>                                  empty; one for each deal that keeps the file
    files/<root>/segments/<index // 1024>/<index>            canonical bytes of a Segment
"""

import logging
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from primitives.deals import SEGMENT_BYTES, file_root, segment_count
from primitives.encoding import EncodingError, decode, encode
from storage.tree import segment_length

log = logging.getLogger(__name__)

_ROOT_NAME: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_PER_DIRECTORY: Final = 1024


class Bitmap:
    """Which of `total` segments are there: bit i of byte i // 8, least significant bit first."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self._bits = bytearray(-(-total // 8))

    @classmethod
    def from_bytes(cls, total: int, raw: bytes) -> "Bitmap":
        """Raises: ValueError when `raw` has another length than `total` bits take; bits beyond are ignored."""
        bitmap = cls(total)
        if len(raw) != len(bitmap._bits):
            raise ValueError(f"{len(raw)} bytes for {total} bits")
        for index in range(total):
            if raw[index >> 3] >> (index & 7) & 1:
                bitmap.add(index)
        return bitmap

    def __contains__(self, index: int) -> bool:
        return 0 <= index < self.total and bool(self._bits[index >> 3] >> (index & 7) & 1)

    def add(self, index: int) -> None:
        if index not in self:
            self._bits[index >> 3] |= 1 << (index & 7)
            self.count += 1

    def discard(self, index: int) -> None:
        if index in self:
            self._bits[index >> 3] &= ~(1 << (index & 7))
            self.count -= 1

    @property
    def is_full(self) -> bool:
        return self.count == self.total

    def to_bytes(self) -> bytes:
        return bytes(self._bits)

    def copy(self) -> "Bitmap":
        other = Bitmap(self.total)
        other.count = self.count
        other._bits[:] = self._bits
        return other


@dataclass(slots=True)
class FileEntry:
    """One file of the store."""

    directory: Path
    size: int
    deals: set[int] = field(default_factory=set)
    held: Bitmap = field(default_factory=lambda: Bitmap(0))

    @property
    def held_bytes(self) -> int:
        """Bytes of the file that are here. Only the last segment may be shorter than the others."""
        last = self.held.total - 1
        short = SEGMENT_BYTES - segment_length(self.size, last) if last in self.held else 0
        return self.held.count * SEGMENT_BYTES - short

    def segment_path(self, index: int) -> Path:
        return self.directory / "segments" / f"{index // _PER_DIRECTORY:06d}" / f"{index:09d}"


def scan_files(files: Path) -> dict[bytes, FileEntry]:
    """The index of everything below `files`. What is not of the layout is removed, and said in the log."""
    index: dict[bytes, FileEntry] = {}
    for directory in sorted(files.iterdir()):
        entry = _scan_file(directory) if _ROOT_NAME.fullmatch(directory.name) else None
        if entry is None or not entry.deals:
            log.warning("storage: %s is not readable, or no deal keeps it; removed", directory.name)
            _remove(directory)
        else:
            index[bytes.fromhex(directory.name)] = entry
    return index


def _scan_file(directory: Path) -> FileEntry | None:
    size = None if directory.is_symlink() else read_head(directory)
    deals = directory / "deals"
    if size is None or not deals.is_dir():
        return None
    entry = FileEntry(directory, size, held=Bitmap(segment_count(size)))
    entry.deals = {int(mark.name) for mark in deals.iterdir() if _NUMBER.fullmatch(mark.name)}
    for path in (directory / "segments").glob("*/*"):
        number = int(path.name) if _NUMBER.fullmatch(path.name) else -1
        if 0 <= number < entry.held.total and path == entry.segment_path(number) and path.is_file():
            entry.held.add(number)
        else:
            _remove(path)
    return entry


def head_bytes(size: int, merkle_root: bytes) -> bytes:
    """Content of a file's `head`."""
    return encode((size, merkle_root))


def read_head(directory: Path) -> int | None:
    """The size in `head`, when it is readable and belongs to the root that names the directory."""
    try:
        size, merkle_root = decode((directory / "head").read_bytes(), tuple[int, bytes])
    except (OSError, EncodingError):
        return None
    return size if size >= 0 and file_root(size, merkle_root).hex() == directory.name else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
