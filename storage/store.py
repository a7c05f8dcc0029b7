"""Segments on disk, kept as long as a deal names their file.

Nothing here knows the chain: callers say which deal a file is for and when a deal is over. No time of the file system
plays any part. Everything is safe to call from several threads. Layout: storage/index.py and docs/storage.md.
"""

import errno
import logging
import os
import secrets
import shutil
import threading
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Final

from primitives.deals import file_root, segment_count
from primitives.encoding import EncodingError, decode, encode
from primitives.merkle import EMPTY_ROOT
from storage.disk import empty_directory, explain, lock_file, sync_directory, write_atomically, write_new
from storage.errors import FileGone, OverBudget, UnwritableStore, WrongBytes
from storage.index import Bitmap, FileEntry, head_bytes, scan_files
from storage.tree import MAX_BODY_BYTES, Segment, segment_length, verify_segment

log = logging.getLogger(__name__)

FORMAT: Final = b"outerstep storage 1\n"
MAX_GONE: Final = 4096
"""How many roots of files that are gone are remembered, with their heights."""


class StorageStore:
    """The store below one directory. One process at a time; `close` lets go of it."""

    def __init__(self, path: str | os.PathLike[str], *, budget_bytes: int | None = None) -> None:
        """Opens or creates it.

        Args: budget_bytes, how many bytes of files it may hold (proofs come on top, below 0.4 %); None: no limit.
        Raises: UnwritableStore, which says what is wrong with the directory.
        """
        self._path = Path(path).absolute()
        self._scratch = self._path / "tmp"
        self._files = self._path / "files"
        self.budget_bytes = budget_bytes
        self.num_rotten = 0
        """Segments found damaged on disk, and dropped, since the start."""
        self._mutex = threading.RLock()
        self._reserved: Counter[bytes] = Counter()
        self._lock = self._open()
        self._index = scan_files(self._files)
        self._used = sum(entry.held_bytes for entry in self._index.values())
        self._gone = self._read_gone()
        self.height = self._read_height()
        """The chain's height that deals were last matched against; never goes down."""

    def close(self) -> None:
        """Let another process open the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- what is held -------------------------------------------------------------------------------------------
    @property
    def used_bytes(self) -> int:
        """Bytes of files held; a file that several deals name counts once."""
        return self._used

    @property
    def num_files(self) -> int:
        return len(self._index)

    def references(self) -> dict[int, bytes]:
        """Deal id -> root, for each deal that keeps a file here."""
        with self._mutex:
            return {deal_id: root for root, entry in self._index.items() for deal_id in entry.deals}

    def has(self, root: bytes, size: int) -> bool:
        """Whether there is a file of this root and size, perhaps with segments missing."""
        entry = self._index.get(root)
        return entry is not None and entry.size == size

    def held(self, root: bytes, size: int) -> Bitmap:
        """A copy of which segments of (root, size) are held; all missing for a file that is not here."""
        with self._mutex:
            entry = self._index.get(root)
            return entry.held.copy() if entry is not None and entry.size == size else Bitmap(segment_count(size))

    def num_held(self, root: bytes, size: int) -> int:
        """How many segments of (root, size) are held."""
        entry = self._index.get(root)
        return entry.held.count if entry is not None and entry.size == size else 0

    def is_complete(self, root: bytes, size: int) -> bool:
        """Whether every segment of (root, size) is held, as far as the index knows (see `audit`)."""
        entry = self._index.get(root)
        return entry is not None and entry.size == size and entry.held.is_full

    def gone_height(self, root: bytes) -> int | None:
        """The first height without this file, for one that was here and went (the last MAX_GONE are remembered)."""
        return self._gone.get(root)

    # --- writing ------------------------------------------------------------------------------------------------
    def refer(self, deal_id: int, root: bytes, size: int) -> bool:
        """Keep a file that is here for one more deal. An empty file needs no bytes, so it is here at once.

        Returns: False when no such file is here (its first segment will bring it).
        """
        with self._mutex:
            if not self.has(root, size) and (size != 0 or root != file_root(0, EMPTY_ROOT)):
                return False
            self._refer(deal_id, root, size, EMPTY_ROOT)
            return True

    def put(self, deal_id: int, root: bytes, size: int, index: int, segment: Segment) -> bool:
        """Store a segment for a deal, after checking it against the root.

        Returns: True when it was stored now, False when it was held already.
        Raises: WrongBytes; OverBudget (before anything is written); FileGone when the deal was released meanwhile.
        """
        if not verify_segment(root, size, index, segment):
            raise WrongBytes(f"these bytes are not segment {index} of this file")
        num_bytes = len(segment.data)
        with self._mutex:
            entry = self._index.get(root)
            if entry is not None and index in entry.held:
                self._refer(deal_id, root, size, segment.merkle_root)
                return False
            self._check_budget(root, size, num_bytes)
            self._reserved[root] += num_bytes
        try:
            with self._mutex:
                self._refer(deal_id, root, size, segment.merkle_root)
            return self._write_segment(deal_id, root, index, segment)
        except OSError as error:
            raise explain(error, self._path) from error
        finally:
            with self._mutex:
                self._reserved[root] -= num_bytes
                self._reserved += Counter()  # drops what is zero

    def release(self, deal_id: int, gone_height: int) -> bool:
        """A deal is over: its file goes with its last deal, at once and from the disk.

        Returns: whether a file went.
        Raises: UnwritableStore when the system refuses; calling again goes on from there.
        """
        try:
            with self._mutex:
                root = self.references().get(deal_id)
                if root is None:
                    return False
                entry = self._index[root]
                if entry.deals != {deal_id}:
                    (entry.directory / "deals" / str(deal_id)).unlink(missing_ok=True)
                    entry.deals.discard(deal_id)
                    sync_directory(entry.directory / "deals")
                    return False
                doomed = self._detach(root, entry, gone_height)
            shutil.rmtree(doomed)
        except OSError as error:
            raise UnwritableStore(f"cannot remove the file of deal {deal_id}: {error.strerror or error}") from error
        return True

    def note_height(self, height: int) -> None:
        """Remember that deals were matched against this height."""
        if height > self.height:
            self.height = height
            write_atomically(self._path / "height", str(height).encode(), scratch=self._scratch, sync=False)

    # --- reading ------------------------------------------------------------------------------------------------
    def read(self, root: bytes, index: int) -> bytes | None:
        """The canonical bytes of a `Segment`, checked against the root; None when it is not (or no longer) held.

        A damaged segment is dropped and counted in `num_rotten`: from then on it is missing and can be sent again.
        """
        entry = self._index.get(root)
        if entry is None or index not in entry.held:
            return None
        body = self._read_body(entry.segment_path(index))
        if body is not None and _is_sound(root, entry.size, index, body):
            return body
        with self._mutex:
            if self._index.get(root) is entry:
                self._drop_segment(entry, index)
        return None

    def audit(self, root: bytes, size: int) -> bool:
        """Read and check every segment from disk: whether all of (root, size) is really present."""
        if not self.has(root, size):
            return False
        for index in range(segment_count(size)):
            if self.read(root, index) is None:
                return False
        return self.is_complete(root, size)

    # --- inside -------------------------------------------------------------------------------------------------
    def _open(self) -> int:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            lock = lock_file(self._path / "LOCK")
            try:
                empty_directory(self._scratch)
                self._files.mkdir(exist_ok=True)
                mark = self._path / "FORMAT"
                if not mark.exists():
                    write_atomically(mark, FORMAT, scratch=self._scratch)
                elif mark.read_bytes() != FORMAT:
                    raise UnwritableStore(f"{self._path} holds another format; this program writes {FORMAT!r}")
                write_new(self._scratch / "probe", b"probe")
                (self._scratch / "probe").unlink()
            except BaseException:
                os.close(lock)
                raise
            return lock
        except OSError as error:
            raise UnwritableStore(f"cannot keep files in {self._path}: {error.strerror or error}") from error

    def _read_height(self) -> int:
        path = self._path / "height"
        text = path.read_text("ascii", errors="replace") if path.exists() else "0"
        return int(text) if text.isdecimal() and len(text) < 20 else 0

    def _read_gone(self) -> OrderedDict[bytes, int]:
        path = self._path / "gone"
        try:
            return OrderedDict(decode(path.read_bytes(), list[tuple[bytes, int]])) if path.exists() else OrderedDict()
        except EncodingError:
            return OrderedDict()

    def _remember_gone(self, root: bytes, gone_height: int | None) -> None:
        """Note, or with None take back, that a file went. A lost note only turns a later "gone" into "unknown"."""
        self._gone.pop(root, None)
        if gone_height is not None:
            self._gone[root] = gone_height
        while len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        try:
            write_atomically(self._path / "gone", encode(list(self._gone.items())), scratch=self._scratch)
        except (OverBudget, UnwritableStore) as error:
            log.warning("storage: %s", error)

    def _check_budget(self, root: bytes, size: int, num_bytes: int) -> None:
        """The whole rest of the file must fit, so that no upload is begun that cannot end."""
        if self.budget_bytes is None:
            return
        entry = self._index.get(root)
        here = entry.held_bytes if entry is not None else 0
        wanted = max(num_bytes, size - here - self._reserved[root])
        free = self.budget_bytes - self._used - self._reserved.total()
        if wanted > free:
            raise OverBudget(f"the file needs {wanted} more bytes; {max(0, free)} of {self.budget_bytes} are free")

    def _refer(self, deal_id: int, root: bytes, size: int, merkle_root: bytes) -> None:
        entry = self._index.get(root) or self._create(root, size, merkle_root)
        if deal_id not in entry.deals:
            write_atomically(entry.directory / "deals" / str(deal_id), b"", scratch=self._scratch)
            entry.deals.add(deal_id)

    def _create(self, root: bytes, size: int, merkle_root: bytes) -> FileEntry:
        draft = self._scratch / secrets.token_hex(12)
        home = self._files / root.hex()
        try:
            for name in ("deals", "segments"):
                (draft / name).mkdir(parents=True)
            write_new(draft / "head", head_bytes(size, merkle_root))
            os.rename(draft, home)
            sync_directory(self._files)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise explain(error, home) from error
        entry = self._index[root] = FileEntry(home, size, held=Bitmap(segment_count(size)))
        if root in self._gone:
            self._remember_gone(root, None)
        return entry

    def _write_segment(self, deal_id: int, root: bytes, index: int, segment: Segment) -> bool:
        """Write aside without the lock, then put it in place if the deal still keeps the file."""
        draft = self._scratch / secrets.token_hex(12)
        write_new(draft, encode(segment))
        with self._mutex:
            entry = self._index.get(root)
            if entry is None or deal_id not in entry.deals:
                draft.unlink()
                raise FileGone("the deal ended while this segment was being written")
            _move(draft, entry.segment_path(index))
            if index in entry.held:
                return False
            entry.held.add(index)
            self._used += len(segment.data)
            return True

    def _detach(self, root: bytes, entry: FileEntry, gone_height: int) -> Path:
        doomed = self._scratch / secrets.token_hex(12)
        os.rename(entry.directory, doomed)
        sync_directory(self._files)
        del self._index[root]
        self._used -= entry.held_bytes
        self._remember_gone(root, gone_height)
        return doomed

    def _read_body(self, path: Path) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read(MAX_BODY_BYTES + 1)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None

    def _drop_segment(self, entry: FileEntry, index: int) -> None:
        if index not in entry.held:
            return
        entry.segment_path(index).unlink(missing_ok=True)
        entry.held.discard(index)
        self._used -= segment_length(entry.size, index)
        self.num_rotten += 1


def _move(draft: Path, place: Path) -> None:
    try:
        if not place.parent.exists():
            place.parent.mkdir()
            sync_directory(place.parent.parent)
        os.replace(draft, place)
        sync_directory(place.parent)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _is_sound(root: bytes, size: int, index: int, body: bytes) -> bool:
    try:
        return verify_segment(root, size, index, decode(body, Segment))
    except EncodingError:
        return False
