"""A download in progress: `<target>.part` with the bytes, `<target>.part.journal` with what has been verified.

The journal holds the root and size, then one slot of 32 bytes per segment: its subtree root once it has been written,
zeros before. On resume each noted segment is hashed again and fetched anew when it differs, so neither a power cut nor
a stray write ends up in the file. At the end the whole file is hashed once more before it takes its name.
"""

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from primitives.deals import SEGMENT_BYTES, segment_count
from primitives.hashing import HASH_BYTES
from storage.disk import sync_directory
from storage.errors import DownloadFailed, UnusableFile
from storage.index import Bitmap
from storage.tree import FileTree, segment_length, segment_root

_MAGIC: Final = b"outerstep part 1"
_HEADER_BYTES: Final = len(_MAGIC) + HASH_BYTES + 8


class PartialFile:
    """Use as a context manager; leaving it keeps what is there for the next time."""

    def __init__(self, target: str | os.PathLike[str], root: bytes, size: int) -> None:
        """Raises: UnusableFile when the target cannot be written, or another download of it is running."""
        self._target = Path(target)
        self._part = self._target.with_name(self._target.name + ".part")
        self._journal_path = self._target.with_name(self._target.name + ".part.journal")
        self._root = root
        self._size = size
        self._header = _MAGIC + root + size.to_bytes(8, "big")
        self._mutex = threading.Lock()
        self.held = Bitmap(segment_count(size))
        """Segments that are written and verified."""
        if not self._target.parent.is_dir() or self._target.is_dir():
            raise UnusableFile(f"{self._target} is a directory, or in a directory that does not exist")
        with contextlib.ExitStack() as stack:
            self._data = stack.enter_context(_opened(self._part))
            self._journal = stack.enter_context(_opened(self._journal_path))
            _lock(self._data, self._part)
            self._stack = stack.pop_all()

    def __enter__(self) -> "PartialFile":
        return self

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._stack.close()

    def resume(self) -> None:
        """Fill `held` from an earlier run of the same download; start over if it was of another file."""
        with self._mutex:
            if os.pread(self._journal, _HEADER_BYTES, 0) != self._header:
                os.ftruncate(self._data, 0)
                os.ftruncate(self._journal, 0)
                os.pwrite(self._journal, self._header, 0)
                return
            for index in range(self.held.total):
                noted = os.pread(self._journal, HASH_BYTES, self._slot(index))
                if len(noted) == HASH_BYTES and any(noted) and segment_root(self._read(index)) == noted:
                    self.held.add(index)

    def write(self, index: int, data: bytes) -> None:
        """Add a verified segment.

        Raises: UnusableFile when the system refuses, for example because the disk is full.
        """
        with self._mutex:
            try:
                _write_all(self._data, data, index * SEGMENT_BYTES)
                _write_all(self._journal, segment_root(data), self._slot(index))
            except OSError as error:
                raise UnusableFile(f"cannot write {self._part}: {error.strerror or error}") from error
            self.held.add(index)

    def finish(self) -> None:
        """Check the whole file, make it outlast a power cut and give it its name.

        Raises: DownloadFailed when bytes changed on disk meanwhile; the partial file is removed then.
        """
        with self._mutex:
            try:
                os.ftruncate(self._data, self._size)
                os.fsync(self._data)
                if FileTree.build(self._part).root != self._root:
                    self._part.unlink()
                    self._journal_path.unlink(missing_ok=True)
                    raise DownloadFailed(f"{self._part} was changed while it was being written; removed, start again")
                os.replace(self._part, self._target)
                sync_directory(self._target.absolute().parent)
                self._journal_path.unlink(missing_ok=True)
            except OSError as error:
                raise UnusableFile(f"cannot finish {self._target}: {error.strerror or error}") from error

    def _slot(self, index: int) -> int:
        return _HEADER_BYTES + index * HASH_BYTES

    def _read(self, index: int) -> bytes:
        return os.pread(self._data, segment_length(self._size, index), index * SEGMENT_BYTES)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a regular file that is created where missing; symbolic links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except (OSError, ValueError) as error:
        raise UnusableFile(f"cannot write {path}: {error}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableFile(f"{path} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        current = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise UnusableFile(f"{path} is being written by another download") from error
    if current.st_ino != os.fstat(descriptor).st_ino:
        raise UnusableFile(f"{path} is being written by another download")


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
