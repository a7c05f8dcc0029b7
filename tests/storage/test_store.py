"""The store on disk: counted by deal, checked on the way in and out, whole after every restart."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from primitives.deals import SEGMENT_BYTES
from storage.errors import FileGone, OverBudget, UnwritableStore, WrongBytes
from storage.store import StorageStore
from storage.tree import FileTree
from tests.storage.support import files_on_disk, names_in, some_bytes

CONTENT = some_bytes(2 * SEGMENT_BYTES + 100)
TREE = FileTree.build(CONTENT)
SEGMENTS = [
    TREE.segment(index, CONTENT[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES])
    for index in range(TREE.num_segments)
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StorageStore]:
    store = StorageStore(tmp_path / "store")
    yield store
    store.close()


def fill(store: StorageStore, deal_id: int = 1) -> None:
    for index, segment in enumerate(SEGMENTS):
        store.put(deal_id, TREE.root, TREE.size, index, segment)


def segment_file(path: Path, index: int) -> Path:
    return path / "store" / "files" / TREE.root.hex() / "segments" / "000000" / f"{index:09d}"


def test_bytes_go_in_once_and_come_out_with_their_proof(store: StorageStore) -> None:
    assert store.put(1, TREE.root, TREE.size, 0, SEGMENTS[0]) is True
    assert store.put(1, TREE.root, TREE.size, 0, SEGMENTS[0]) is False
    assert store.used_bytes == SEGMENT_BYTES
    assert not store.is_complete(TREE.root, TREE.size)
    fill(store)
    assert store.audit(TREE.root, TREE.size)
    assert store.used_bytes == TREE.size


def test_other_bytes_for_a_stored_segment_are_refused_and_change_nothing(store: StorageStore, tmp_path: Path) -> None:
    fill(store)
    before = segment_file(tmp_path, 0).read_bytes()
    with pytest.raises(WrongBytes):
        store.put(1, TREE.root, TREE.size, 0, SEGMENTS[1])
    assert segment_file(tmp_path, 0).read_bytes() == before


def test_wrong_bytes_leave_no_trace(store: StorageStore, tmp_path: Path) -> None:
    with pytest.raises(WrongBytes):
        store.put(1, bytes(32), TREE.size, 0, SEGMENTS[0])
    assert files_on_disk(tmp_path / "store") == set()
    assert store.references() == {}


def test_a_file_stays_until_its_last_deal_goes(store: StorageStore, tmp_path: Path) -> None:
    fill(store, deal_id=1)
    assert store.refer(2, TREE.root, TREE.size)
    assert store.release(1, 10) is False
    assert store.audit(TREE.root, TREE.size)
    assert store.gone_height(TREE.root) is None
    assert store.release(2, 20) is True
    assert files_on_disk(tmp_path / "store") == set()
    assert names_in(tmp_path / "store" / "tmp") == []
    assert store.gone_height(TREE.root) == 20
    assert (store.used_bytes, store.read(TREE.root, 0)) == (0, None)


def test_everything_is_found_again_after_a_restart_whatever_the_file_times(store: StorageStore, tmp_path: Path) -> None:
    fill(store, deal_id=1)
    store.refer(2, TREE.root, TREE.size)
    store.note_height(77)
    store.close()
    for path in (tmp_path / "store").rglob("*"):
        os.utime(path, (0, 0))
    again = StorageStore(tmp_path / "store")
    assert again.references() == {1: TREE.root, 2: TREE.root}
    assert (again.used_bytes, again.height) == (TREE.size, 77)
    assert again.audit(TREE.root, TREE.size)
    again.release(1, 80)
    again.release(2, 81)
    again.close()
    assert StorageStore(tmp_path / "store").gone_height(TREE.root) == 81


def test_what_a_crash_leaves_behind_is_cleared_at_start(store: StorageStore, tmp_path: Path) -> None:
    fill(store)
    store.close()
    home = tmp_path / "store"
    (home / "tmp" / "half").write_bytes(b"half a segment")
    (home / "files" / TREE.root.hex() / "segments" / "000000" / "000000099").write_bytes(b"beyond the end")
    (home / "files" / "not-a-root").mkdir()
    orphan = home / "files" / ("ab" * 32)
    (orphan / "deals").mkdir(parents=True)
    again = StorageStore(home)
    assert names_in(home / "tmp") == []
    assert files_on_disk(home) == {TREE.root.hex()}
    assert again.audit(TREE.root, TREE.size)


def test_a_file_whose_last_deal_was_removed_before_the_crash_is_not_kept(store: StorageStore, tmp_path: Path) -> None:
    fill(store)
    store.close()
    (tmp_path / "store" / "files" / TREE.root.hex() / "deals" / "1").unlink()
    assert StorageStore(tmp_path / "store").num_files == 0
    assert files_on_disk(tmp_path / "store") == set()


@pytest.mark.parametrize("damage", ["flip", "shorten", "empty", "lengthen", "remove"])
def test_a_segment_damaged_on_disk_is_missing_and_can_be_sent_again(
    store: StorageStore, tmp_path: Path, damage: str
) -> None:
    fill(store)
    path = segment_file(tmp_path, 1)
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    whole = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"flip": bytes(body), "shorten": whole[:-5], "empty": b"", "lengthen": whole * 2}[damage])
    assert store.read(TREE.root, 1) is None
    assert store.num_rotten == 1
    assert 1 not in store.held(TREE.root, TREE.size)
    assert store.used_bytes == TREE.size - SEGMENT_BYTES
    assert not store.audit(TREE.root, TREE.size)
    assert store.put(1, TREE.root, TREE.size, 1, SEGMENTS[1]) is True
    assert store.audit(TREE.root, TREE.size)


def test_a_damaged_head_costs_the_file_but_not_the_store(store: StorageStore, tmp_path: Path) -> None:
    fill(store)
    store.close()
    (tmp_path / "store" / "files" / TREE.root.hex() / "head").write_bytes(b"\x92\x01\xc4\x00")
    again = StorageStore(tmp_path / "store")
    assert again.num_files == 0
    fill(again)
    assert again.audit(TREE.root, TREE.size)


def test_the_budget_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    store = StorageStore(tmp_path / "store", budget_bytes=TREE.size - 1)
    with pytest.raises(OverBudget, match=f"needs {TREE.size} more bytes"):
        store.put(1, TREE.root, TREE.size, 0, SEGMENTS[0])
    assert files_on_disk(tmp_path / "store") == set()
    store.close()
    exact = StorageStore(tmp_path / "store", budget_bytes=TREE.size)
    fill(exact)
    other = FileTree.build(b"one more")
    with pytest.raises(OverBudget):
        exact.put(2, other.root, other.size, 0, other.segment(0, b"one more"))
    exact.release(1, 5)
    assert exact.put(2, other.root, other.size, 0, other.segment(0, b"one more"))


def test_a_path_that_cannot_be_written_is_told_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(UnwritableStore, match="cannot keep files in"):
        StorageStore(tmp_path / "file" / "store")
    with pytest.raises(UnwritableStore, match="cannot keep files in"):
        StorageStore("/proc/outerstep-store")


def test_a_store_serves_one_process_and_its_own_format(store: StorageStore, tmp_path: Path) -> None:
    with pytest.raises(UnwritableStore, match="in use"):
        StorageStore(tmp_path / "store")
    store.close()
    (tmp_path / "store" / "FORMAT").write_text("outerstep storage 999\n")
    with pytest.raises(UnwritableStore, match="another format"):
        StorageStore(tmp_path / "store")


def test_an_empty_file_is_here_at_once_if_its_root_is_right(store: StorageStore) -> None:
    empty = FileTree.build(b"")
    assert not store.refer(1, bytes(32), 0)
    assert store.refer(1, empty.root, 0)
    assert store.audit(empty.root, 0)
    assert store.references() == {1: empty.root}


def test_the_same_segment_sent_many_times_at_once_is_stored_once(store: StorageStore) -> None:
    gate = threading.Barrier(8)
    stored: list[bool] = []

    def send(deal_id: int) -> None:
        gate.wait()
        stored.append(store.put(deal_id, TREE.root, TREE.size, 0, SEGMENTS[0]))

    threads = [threading.Thread(target=send, args=(deal_id,)) for deal_id in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stored.count(True) == 1
    assert store.used_bytes == SEGMENT_BYTES
    assert len(store.references()) == 8


def test_a_segment_whose_deal_ends_while_it_is_written_does_not_stay(
    store: StorageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage import store as module

    write_new = module.write_new

    def write_then_release(path: Path, data: bytes, *, sync: bool = True) -> None:
        write_new(path, data, sync=sync)
        if len(data) > SEGMENT_BYTES:
            store.release(1, 9)

    monkeypatch.setattr(module, "write_new", write_then_release)
    with pytest.raises(FileGone):
        store.put(1, TREE.root, TREE.size, 0, SEGMENTS[0])
    assert files_on_disk(tmp_path / "store") == set()
    assert names_in(tmp_path / "store" / "tmp") == []
