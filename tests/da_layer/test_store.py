"""Rows on disk: verified in and out, whole or not at all, gone at their height and remembered as gone."""

import os
from pathlib import Path

import msgspec
import pytest
import structlog.testing

from da_layer.coding import EncodedBlob, encode_blob
from da_layer.errors import StoreFull, StoreUnavailable, WrongRow
from da_layer.files import Pruned, StoreFiles
from da_layer.store import Held, RowStore
from da_layer.wire import SignedPromise
from primitives.blobs import ServiceSet
from tests.da_layer.network import promise_for, proven_rows, sign, wrong_bytes, wrong_proof

ROWS = (1, 4, 5)
NOBODY = ServiceSet(1, ())


def make_blob(seed: int = 0) -> EncodedBlob:
    return encode_blob(bytes([seed]) * 1000, k=2, n=6)


def promised(blob: EncodedBlob, *, expiry_height: int = 100, **changes: object) -> SignedPromise:
    return sign(promise_for(blob, NOBODY, expiry_height=expiry_height, **changes))


@pytest.fixture
def store(tmp_path: Path) -> RowStore:
    return RowStore(tmp_path / "da")


@pytest.fixture
def blob() -> EncodedBlob:
    return make_blob()


def rows_file(path: Path) -> Path:
    return next((path / "da" / "blobs").glob("*/*/rows"))


def files_under(path: Path) -> list[Path]:
    return [file for file in (path / "da").rglob("*") if file.is_file()]


def test_rows_come_back_with_their_proofs_also_after_a_restart(
    tmp_path: Path, store: RowStore, blob: EncodedBlob
) -> None:
    signed = promised(blob)
    store.put(signed, proven_rows(blob, ROWS)[::-1])
    for reader in (store, RowStore(tmp_path / "da")):
        assert reader.read(blob.commitment, [5, 1, 3]) == proven_rows(blob, [1, 5])
        assert reader.status(blob.commitment) == Held(signed.promise, ROWS)
        assert reader.holds(signed.promise)
        assert reader.used_bytes == store.used_bytes > 3 * blob.header.row_size


def test_a_blob_that_was_never_here_is_unknown(store: RowStore, blob: EncodedBlob) -> None:
    assert store.status(blob.commitment) is None
    assert store.read(blob.commitment, [0]) == []
    assert not store.holds(promised(blob).promise)


@pytest.mark.parametrize("change", [wrong_bytes, wrong_proof])
def test_rows_that_do_not_prove_are_not_stored(
    tmp_path: Path, store: RowStore, blob: EncodedBlob, change: object
) -> None:
    rows = proven_rows(blob, ROWS)
    rows[1] = change(rows[1])  # type: ignore[operator]
    with pytest.raises(WrongRow, match="row 4"):
        store.put(promised(blob), rows)
    assert files_under(tmp_path) == []


def test_no_rows_and_rows_given_twice_are_refused(store: RowStore, blob: EncodedBlob) -> None:
    for indices in ([], [1, 1]):
        with pytest.raises(WrongRow):
            store.put(promised(blob), proven_rows(blob, indices))


def test_a_repeated_put_changes_nothing(store: RowStore, blob: EncodedBlob) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    used = store.used_bytes
    store.put(promised(blob), proven_rows(blob, ROWS))
    assert store.used_bytes == used
    with pytest.raises(WrongRow, match="held for this promise already"):
        store.put(promised(blob), proven_rows(blob, [0]))


def test_two_promises_of_one_blob_live_and_end_apart(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    short, long = promised(blob, expiry_height=50), promised(blob, expiry_height=60)
    store.put(short, proven_rows(blob, [0, 1]))
    store.put(long, proven_rows(blob, [1, 2]))
    assert store.status(blob.commitment) == Held(long.promise, (0, 1, 2))
    assert store.read(blob.commitment, range(6)) == proven_rows(blob, [0, 1, 2])
    assert store.prune(51) == 1
    assert store.status(blob.commitment) == Held(long.promise, (1, 2))
    assert store.prune(61) == 1
    assert store.status(blob.commitment) == Pruned(60, 61)


def test_pruning_is_exact_at_the_border_and_remembered(tmp_path: Path, store: RowStore) -> None:
    """FAULTS D31."""
    blobs = [make_blob(seed) for seed in range(3)]
    for blob, height in zip(blobs, (99, 100, 101), strict=True):
        store.put(promised(blob, expiry_height=height), proven_rows(blob, ROWS))
    assert store.prune(100) == 1
    for reader in (store, RowStore(tmp_path / "da")):
        assert reader.status(blobs[0].commitment) == Pruned(99, 100)
        assert reader.read(blobs[0].commitment, ROWS) == []
        assert reader.read(blobs[1].commitment, ROWS) == proven_rows(blobs[1], ROWS)
        assert reader.read(blobs[2].commitment, ROWS) == proven_rows(blobs[2], ROWS)
    assert store.prune(102) == 2
    assert store.used_bytes == 0
    assert [file.name for file in files_under(tmp_path)] == ["pruned"]


def test_a_full_disk_does_not_keep_rows_past_their_height(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    """Nothing can be noted down then, and only what goes makes room again."""
    store.put(promised(blob), proven_rows(blob, ROWS))
    (tmp_path / "da" / "pruned").symlink_to("/dev/full")
    assert store.prune(101) == 1
    assert files_under(tmp_path) == []
    assert store.used_bytes == 0
    assert store.status(blob.commitment) == Pruned(100, 101)


def test_a_note_of_a_pruned_blob_that_fails_leaves_no_part_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StoreFiles(tmp_path)
    files.append_pruned([(b"a" * 32, Pruned(1, 2))])

    def fail(descriptor: int) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space"):
            files.append_pruned([(b"b" * 32, Pruned(3, 4))])
    files.append_pruned([(b"c" * 32, Pruned(5, 6))])
    assert files.read_pruned() == {b"a" * 32: Pruned(1, 2), b"c" * 32: Pruned(5, 6)}


def test_a_blob_may_come_back_after_it_was_pruned(store: RowStore, blob: EncodedBlob) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    store.prune(101)
    again = promised(blob, expiry_height=200)
    store.put(again, proven_rows(blob, ROWS))
    assert store.status(blob.commitment) == Held(again.promise, ROWS)


def test_a_half_written_list_of_pruned_blobs_is_cut_off(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    store.prune(101)
    with open(tmp_path / "da" / "pruned", "ab") as file:
        file.write(b"torn")
    other = make_blob(1)
    reopened = RowStore(tmp_path / "da")
    reopened.put(promised(other), proven_rows(other, ROWS))
    reopened.prune(102)
    final = RowStore(tmp_path / "da")
    assert final.status(blob.commitment) == Pruned(100, 101)
    assert final.status(other.commitment) == Pruned(100, 102)


def test_the_budget_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "da", budget_bytes=3000)
    first, second = make_blob(1), make_blob(2)
    store.put(promised(first), proven_rows(first, ROWS))
    before = files_under(tmp_path)
    with pytest.raises(StoreFull) as caught:
        store.put(promised(second), proven_rows(second, ROWS))
    assert caught.value.used == store.used_bytes
    assert files_under(tmp_path) == before
    store.prune(101)
    store.put(promised(second, expiry_height=200), proven_rows(second, ROWS))


def test_a_corrupt_row_on_disk_is_dropped_and_the_others_are_served(
    tmp_path: Path, store: RowStore, blob: EncodedBlob
) -> None:
    """FAULTS D13, D25: rows from the own disk are checked too."""
    store.put(promised(blob), proven_rows(blob, ROWS))
    flip(rows_file(tmp_path), blob.header.row_size + 7)
    with structlog.testing.capture_logs() as logs:
        assert store.read(blob.commitment, ROWS) == proven_rows(blob, [1, 5])
    assert [entry["row"] for entry in logs] == [4]
    assert store.status(blob.commitment) == Held(promised(blob).promise, (1, 5))
    assert not store.holds(promised(blob).promise)


def test_damaged_rows_are_written_again_when_they_are_put_again(
    tmp_path: Path, store: RowStore, blob: EncodedBlob
) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    flip(rows_file(tmp_path), 3)
    store.read(blob.commitment, ROWS)
    store.put(promised(blob), proven_rows(blob, ROWS))
    assert store.holds(promised(blob).promise)
    assert RowStore(tmp_path / "da").read(blob.commitment, ROWS) == proven_rows(blob, ROWS)


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_file_of_rows_serves_what_is_left(
    tmp_path: Path, store: RowStore, blob: EncodedBlob, damage: str
) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    if damage == "missing":
        rows_file(tmp_path).unlink()
    else:
        os.truncate(rows_file(tmp_path), 2 * blob.header.row_size - 1)
    left = [] if damage == "missing" else [1]
    assert store.read(blob.commitment, ROWS) == proven_rows(blob, left)
    store.put(promised(blob), proven_rows(blob, ROWS))
    assert store.read(blob.commitment, ROWS) == proven_rows(blob, ROWS)


def test_a_damaged_manifest_is_cleared_away_at_start(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    other = make_blob(1)
    for each in (blob, other):
        store.put(promised(each), proven_rows(each, ROWS))
    (rows_file(tmp_path).parent / "manifest").write_bytes(b"\x93garbage")
    damaged = blob if blob.commitment.hex() in str(rows_file(tmp_path)) else other
    kept = other if damaged is blob else blob
    with structlog.testing.capture_logs() as logs:
        reopened = RowStore(tmp_path / "da")
    assert len(logs) == 1
    assert reopened.status(damaged.commitment) is None
    assert reopened.read(kept.commitment, ROWS) == proven_rows(kept, ROWS)
    reopened.put(promised(damaged), proven_rows(damaged, ROWS))
    assert reopened.read(damaged.commitment, ROWS) == proven_rows(damaged, ROWS)


def test_rows_moved_under_another_name_are_not_served(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    directory = rows_file(tmp_path).parent
    (directory.parent.parent / f"{999:020d}").mkdir()
    directory.rename(directory.parent.parent / f"{999:020d}" / directory.name)
    assert RowStore(tmp_path / "da").status(blob.commitment) is None


def test_what_a_crash_left_half_written_is_gone_after_the_restart(
    tmp_path: Path, store: RowStore, blob: EncodedBlob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(StoreFiles, "publish", crash)
    with pytest.raises(KeyboardInterrupt):
        store.put(promised(blob), proven_rows(blob, ROWS))
    assert files_under(tmp_path)
    monkeypatch.undo()
    reopened = RowStore(tmp_path / "da")
    assert files_under(tmp_path) == []
    assert reopened.status(blob.commitment) is None
    assert store.used_bytes == 0


def test_a_disk_that_refuses_leaves_nothing_counted_or_stored(
    tmp_path: Path, store: RowStore, blob: EncodedBlob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreUnavailable, match="No space left"):
        store.put(promised(blob), proven_rows(blob, ROWS))
    monkeypatch.undo()
    assert store.used_bytes == 0
    assert files_under(tmp_path) == []
    store.put(promised(blob), proven_rows(blob, ROWS))
    assert store.holds(promised(blob).promise)


def test_a_path_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=str(tmp_path / "file")):
        RowStore(tmp_path / "file")


def test_promises_differ_by_every_field(store: RowStore, blob: EncodedBlob) -> None:
    store.put(promised(blob), proven_rows(blob, ROWS))
    other = msgspec.structs.replace(promised(blob).promise, namespace="else")
    assert not store.holds(other)


def test_names_that_are_not_heights_are_left_alone(tmp_path: Path, store: RowStore, blob: EncodedBlob) -> None:
    foreign = tmp_path / "da" / "blobs" / "lost+found"
    foreign.mkdir()
    store.put(promised(blob), proven_rows(blob, ROWS))
    store.prune(1000)
    RowStore(tmp_path / "da")
    assert foreign.is_dir()


def flip(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))
