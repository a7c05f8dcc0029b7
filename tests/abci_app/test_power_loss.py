"""What a power cut can leave of the database: its newest log torn off anywhere. And that commits ask for durability."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from abci_app.store import StateCorrupted, Store

HEIGHTS = 6
SEED = 7


def writes_of(height: int) -> dict[bytes, bytes | None]:
    """Some new keys, some changed, one deleted."""
    written: dict[bytes, bytes | None] = {b"k%d" % key: b"at %d" % height * 20 for key in range(height, height + 5)}
    return written | {b"k%d" % (height - 1): None}


def fill(path: Path) -> list[bytes]:
    """A database of HEIGHTS commits; the app hash of each, from height 0."""
    hashes = [b""]
    with Store(path) as store:
        for height in range(1, HEIGHTS + 1):
            prepared = store.prepare(height, writes_of(height))
            store.commit(prepared)
            hashes.append(prepared.app_hash)
    return hashes


def test_a_log_torn_off_anywhere_leaves_an_earlier_height_whole_or_is_refused(tmp_path: Path) -> None:
    hashes = fill(tmp_path / "whole")
    [log] = (tmp_path / "whole").glob("*.log")
    size, chance, found, refusals = log.stat().st_size, random.Random(SEED), set[int](), list[str]()
    for number, cut in enumerate(sorted({0, 1, size - 1, *(chance.randrange(size) for _ in range(25))})):
        torn = tmp_path / f"torn{number}"
        shutil.copytree(tmp_path / "whole", torn)
        with (torn / log.name).open("r+b") as file:
            file.truncate(cut)
        try:
            with Store(torn) as store:
                height = store.committed.height
                assert store.committed.app_hash == hashes[height]
                store.check_integrity()
                for later in range(height + 1, HEIGHTS + 1):
                    store.commit(store.prepare(later, writes_of(later)))
                assert store.committed.app_hash == hashes[HEIGHTS]
                found.add(height)
        except StateCorrupted as refusal:
            refusals.append(str(refusal))
    assert all("delete the application's data" in refusal for refusal in refusals)
    assert len(found) > 2, "the cuts should reach several heights"


def test_every_commit_is_one_batch_that_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        asked: list[dict[str, Any]] = []

        class Watched:
            """The database, with its batches noted."""

            def __init__(self, inner: Any) -> None:
                self._inner = inner

            def write_batch(self, **options: Any) -> Any:
                asked.append(options)
                return self._inner.write_batch(**options)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        monkeypatch.setattr(store, "_db", Watched(store._db))
        store.commit(store.prepare(1, writes_of(1)))
        assert asked == [{"transaction": True, "sync": True}]
