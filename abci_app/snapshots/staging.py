"""The database that a restore collects in: verified chunks of one snapshot, and which of them are there.

Beside the state's own keys (abci_app.store) it holds ``o``, the offer, and ``p`` + index for each chunk. A chunk and
its mark are one synced batch. It has no height before `finish`, so it can never be taken for a committed state.
"""

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import plyvel
import structlog

from abci_app.snapshots.form import VerifiedChunk
from abci_app.store import put_end, put_part, read_tree
from primitives.encoding import EncodingError, decode, encode

_OFFER: Final = b"o"
_CHUNK: Final = b"p"

_log = structlog.get_logger()


class StagingWrong(Exception):
    """What the database gives back is not what was verified: the disk is damaged. It was removed."""


class Offer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The snapshot that is being restored."""

    height: int
    app_hash: bytes
    metadata: bytes


class Staging:
    """The database beside the store of `store_path`."""

    def __init__(self, store_path: Path, offer: Offer) -> None:
        """With the chunks of `offer` that an earlier try verified; whatever else lies there is removed.

        Raises: OSError, plyvel.Error.
        """
        self.path = staging_path(store_path)
        self._offer = offer
        self._database = _take_up(self.path, offer)
        if self._database is None:
            discard_staging(store_path)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = plyvel.DB(str(self.path), create_if_missing=True, bloom_filter_bits=10)
            self._database.put(_OFFER, encode(offer), sync=True)
        with self._database.iterator(prefix=_CHUNK, include_value=False) as keys:
            self._held = {int.from_bytes(key[1:], "big") for key in keys}

    @property
    def num_held(self) -> int:
        return len(self._held)

    def has(self, index: int) -> bool:
        return index in self._held

    def put(self, index: int, chunk: VerifiedChunk) -> None:
        """Keep chunk `index`, durably.

        Raises: plyvel.Error.
        """
        with self._database.write_batch(transaction=True, sync=True) as batch:
            put_part(batch, chunk.items, chunk.buckets)
            batch.put(_mark(index), b"")
        self._held.add(index)

    def finish(self) -> None:
        """Work the root out once more, make it the state of the offer's height, and close.

        Raises: StagingWrong, plyvel.Error.
        """
        if read_tree(self._database).root != self._offer.app_hash:
            self.close()
            shutil.rmtree(self.path)
            raise StagingWrong("the restored state has another root than its chunks had; the disk may be damaged")
        with self._database.write_batch(transaction=True, sync=True) as batch:
            batch.delete(_OFFER)
            for index in self._held:
                batch.delete(_mark(index))
            put_end(batch, self._offer.height, self._offer.app_hash)
        self.close()

    def close(self) -> None:
        self._database.close()


def staging_path(store_path: Path) -> Path:
    """The folder of the database beside the store of `store_path`."""
    return store_path.with_name(f"{store_path.name}.restoring")


def discard_staging(store_path: Path) -> None:
    """Remove what a restore has collected; harmless when there is nothing.

    Raises: OSError.
    """
    path = staging_path(store_path)
    if path.exists():
        shutil.rmtree(path)


def _take_up(path: Path, offer: Offer) -> Any:
    """The database with the chunks of `offer` so far; None when it holds something else, or is damaged."""
    if not path.exists():
        return None
    try:
        database = plyvel.DB(str(path), create_if_missing=False)
    except plyvel.Error as error:
        _log.warning("what was restored so far cannot be read; starting anew", path=str(path), reason=str(error))
        return None
    try:
        if decode(database.get(_OFFER) or b"", Offer) == offer:
            return database
    except EncodingError:
        _log.info("what was restored before is complete or of another form; starting anew", path=str(path))
    database.close()
    return None


def _mark(index: int) -> bytes:
    return _CHUNK + index.to_bytes(4, "big")
