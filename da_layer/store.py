"""A node's rows on disk: verified before they are stored and again when they are read, deleted by expiry height.

Methods block on the disk; servers call them in threads. All methods may be called from several threads at once.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import structlog

from da_layer.coding import verify_row
from da_layer.errors import StoreFull, StoreUnavailable, WrongRow
from da_layer.files import Manifest, Pruned, StoreFiles
from da_layer.limits import DaCounters
from da_layer.wire import ProvenRow, SignedPromise
from primitives.blobs import BlobPromise
from primitives.encoding import encode

DEFAULT_BUDGET_BYTES: Final = 64 * 1024**3

_log = structlog.get_logger()


@dataclass(slots=True)
class _Holding:
    """The rows that are held for one promise."""

    signed: SignedPromise
    directory: Path
    indices: tuple[int, ...]
    size: int
    """Bytes on disk."""
    lost: set[int] = field(default_factory=set)
    """Indices of rows found damaged."""

    @property
    def intact(self) -> tuple[int, ...]:
        return tuple(index for index in self.indices if index not in self.lost)


@dataclass(frozen=True, slots=True)
class Held:
    """A blob of which rows are here: the promise that lasts longest, and the rows held for any promise."""

    promise: BlobPromise
    indices: tuple[int, ...]


class RowStore:
    """Rows by commitment, kept until their expiry height has passed (`prune`).

    The same blob may be promised more than once (another lifetime, another publisher); each promise has rows of its
    own. Raises StoreUnavailable with the path when the directory cannot be used.
    """

    def __init__(self, path: Path, *, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.counters = DaCounters()
        self._path = path
        self._lock = threading.Lock()
        self._used = 0
        self._holdings: dict[bytes, dict[bytes, _Holding]] = {}
        with self._os_errors():
            self._files = StoreFiles(path)
            self._pruned = self._files.read_pruned()
            self._load()

    @property
    def used_bytes(self) -> int:
        """Bytes that count against the budget."""
        return self._used

    def metrics(self) -> dict[str, int]:
        """Counters and current values, by name."""
        with self._lock:
            holdings = [holding for held in self._holdings.values() for holding in held.values()]
            return asdict(self.counters) | {
                "blobs_held": len(self._holdings),
                "rows_held": sum(len(holding.indices) - len(holding.lost) for holding in holdings),
                "bytes_held": self._used,
            }

    def holds(self, promise: BlobPromise) -> bool:
        """Whether rows are held for exactly this promise, none of them known to be damaged."""
        with self._lock:
            holding = self._holdings.get(promise.header.commitment, {}).get(promise.digest)
            return holding is not None and not holding.lost

    def status(self, commitment: bytes) -> Held | Pruned | None:
        """What is here of a blob: its rows, the memory of them, or nothing."""
        with self._lock:
            holdings = self._holdings.get(commitment)
            if not holdings:
                return self._pruned.get(commitment)
            longest = max((held.signed.promise for held in holdings.values()), key=lambda p: p.expiry_height)
            return Held(longest, tuple(sorted({index for held in holdings.values() for index in held.intact})))

    def put(self, signed: SignedPromise, rows: Sequence[ProvenRow]) -> None:
        """Store all rows of one promise: afterwards they are on disk, or nothing is. A repeat changes nothing.

        Who may have rows stored, and which rows are this node's, is for the caller to check.

        Raises: WrongRow, StoreFull (before anything is written), StoreUnavailable.
        """
        header = signed.promise.header
        ordered = sorted(rows, key=lambda row: row.index)
        for row in ordered:
            if not verify_row(header, row.index, row.data, row.proof):
                raise WrongRow(f"row {row.index} does not prove against the rows root")
        indices = tuple(row.index for row in ordered)
        if not indices or len(set(indices)) != len(indices):
            raise WrongRow(f"rows {list(indices)} should be at least one, each once")
        manifest = Manifest(signed, indices, tuple(row.proof for row in ordered))
        with self._os_errors():
            if not self._repair(manifest, ordered):
                self._write(manifest, ordered)

    def read(self, commitment: bytes, indices: Sequence[int]) -> list[ProvenRow]:
        """Those of the wanted rows that are here and whole, by index. A damaged row is dropped, not served.

        Raises: StoreUnavailable.
        """
        with self._lock:
            holdings = list(self._holdings.get(commitment, {}).values())
        found: dict[int, ProvenRow] = {}
        with self._os_errors():
            for holding in holdings:
                for row in self._read_holding(holding, set(indices) - found.keys()):
                    found[row.index] = row
        return [found[index] for index in sorted(found)]

    def prune(self, height: int) -> int:
        """Delete the rows of all promises whose expiry height is below `height`; returns how many promises that were.

        Raises: StoreUnavailable (what was not deleted will be at the next call).
        """
        with self._os_errors():
            with self._lock:
                over = [
                    (commitment, digest, holding)
                    for commitment, holdings in self._holdings.items()
                    for digest, holding in holdings.items()
                    if holding.signed.promise.expiry_height < height
                ]
                self._bury(over, height)
                doomed = [path for expiry, path in self._files.expiry_directories() if expiry < height]
            for directory in doomed:
                self._files.discard(directory)
        return len(over)

    def _bury(self, over: Sequence[tuple[bytes, bytes, _Holding]], height: int) -> None:
        """Forget holdings, and remember that they were here. Called with the lock."""
        if not over:
            return
        records = {name: Pruned(held.signed.promise.expiry_height, height) for name, _, held in over}
        try:
            self._files.append_pruned(records.items())
        except OSError as error:
            # On a full disk the rows must go all the more; after a restart these blobs are unknown, not pruned.
            _log.warning("pruned blobs cannot be noted down", detail=str(error))
        self._pruned.update(records)
        self.counters.promises_pruned += len(over)
        for commitment, digest, holding in over:
            self._used -= holding.size
            del self._holdings[commitment][digest]
            if not self._holdings[commitment]:
                del self._holdings[commitment]

    def _load(self) -> None:
        for _, expiry_directory in self._files.expiry_directories():
            for directory in sorted(expiry_directory.iterdir()):
                manifest = self._files.read_manifest(directory)
                if manifest is None:
                    _log.warning("damaged rows deleted", path=str(directory))
                    self._files.discard(directory)
                else:
                    self._add(manifest, sum(file.stat().st_size for file in directory.iterdir()))

    def _add(self, manifest: Manifest, size: int, *, counted: bool = False) -> None:
        promise = manifest.signed.promise
        holding = _Holding(manifest.signed, self._files.directory_of(manifest.signed), manifest.indices, size)
        self._holdings.setdefault(promise.header.commitment, {})[promise.digest] = holding
        if not counted:
            self._used += size

    def _repair(self, manifest: Manifest, rows: Sequence[ProvenRow]) -> bool:
        """Whether the promise is held already; damaged rows of it are then written again."""
        promise = manifest.signed.promise
        with self._lock:
            holding = self._holdings.get(promise.header.commitment, {}).get(promise.digest)
            if holding is None:
                return False
            if holding.indices != manifest.indices:
                raise WrongRow(f"rows {list(holding.indices)} are held for this promise already")
            if holding.lost:
                self._files.repair(manifest, rows, promise.header.row_size)
                holding.lost.clear()
            return True

    def _write(self, manifest: Manifest, rows: Sequence[ProvenRow]) -> None:
        need = len(encode(manifest)) + sum(len(row.data) for row in rows)
        self._reserve(need)
        stored = False
        try:
            pending = self._files.write(manifest, (row.data for row in rows))
            with self._lock:
                stored = self._publish(pending, manifest, need)
            if not stored:
                self._files.discard(pending)
        finally:
            if not stored:
                with self._lock:
                    self._used -= need

    def _publish(self, pending: Path, manifest: Manifest, size: int) -> bool:
        """False when another call has stored the same promise meanwhile. Called with the lock."""
        promise = manifest.signed.promise
        if promise.digest in self._holdings.get(promise.header.commitment, {}):
            return False
        self._files.publish(pending, manifest.signed)
        self._add(manifest, size, counted=True)
        self.counters.promises_stored += 1
        return True

    def _reserve(self, need: int) -> None:
        with self._lock:
            if self._used + need > self.budget_bytes:
                self.counters.full_refused += 1
                raise StoreFull(need=need, used=self._used, budget=self.budget_bytes)
            self._used += need

    def _read_holding(self, holding: _Holding, wanted: set[int]) -> Iterator[ProvenRow]:
        header = holding.signed.promise.header
        wanted &= set(holding.intact)
        manifest = self._files.read_manifest(holding.directory) if wanted else None
        for index in sorted(wanted):
            row = self._read_row(holding, manifest, index)
            if row is not None and verify_row(header, index, row.data, row.proof):
                yield row
            else:
                self._drop(holding, index)

    def _read_row(self, holding: _Holding, manifest: Manifest | None, index: int) -> ProvenRow | None:
        if manifest is None or index not in manifest.indices:
            return None
        position = manifest.indices.index(index)
        try:
            data = self._files.read_row(holding.directory, position, holding.signed.promise.header.row_size)
        except FileNotFoundError:
            return None
        return ProvenRow(index, data, manifest.proofs[position])

    def _drop(self, holding: _Holding, index: int) -> None:
        """Remember a row as damaged, unless its blob was pruned while it was read."""
        promise = holding.signed.promise
        with self._lock:
            if promise.digest in self._holdings.get(promise.header.commitment, {}):
                self.counters.rows_damaged += index not in holding.lost
                holding.lost.add(index)
                _log.warning("damaged row dropped", blob=promise.header.commitment.hex(), row=index)

    @contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(f"rows in {self._path} cannot be read or written: {error}") from error
