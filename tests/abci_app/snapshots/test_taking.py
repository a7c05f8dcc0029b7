"""Taking snapshots: the same bytes on every node, beside the chain, and never at its cost."""

import errno
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abci_app import failpoints
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots import taking, writing
from abci_app.snapshots.form import Metadata, verify_chunk
from abci_app.snapshots.taking import Snapshots
from abci_app.store import CommittedState, Store
from tests.abci_app.kit import AppProcess
from tests.abci_app.snapshots.kit import HEIGHT, Peer, commit, content, open_snapshots, some_state

ITEMS = st.dictionaries(st.binary(min_size=1, max_size=6), st.binary(max_size=300), max_size=40)


def take(snapshots: Snapshots, state: CommittedState) -> None:
    snapshots.after_commit(state)
    assert snapshots.wait(30)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "app")
    commit(store, HEIGHT, some_state())
    return store


def chunks_of(snapshots: Snapshots, snapshot: pb.Snapshot) -> list[bytes]:
    return [snapshots.load_chunk(snapshot.height, snapshot.format, i) for i in range(snapshot.chunks)]


# --- content --------------------------------------------------------------------------------------------------------
@settings(max_examples=12, deadline=None)
@given(ITEMS, st.randoms(use_true_random=False))
def test_two_stores_of_any_history_give_the_same_bytes(items: dict[bytes, bytes], chance: object) -> None:
    with tempfile.TemporaryDirectory() as name:
        found = []
        for turn in range(2):
            with Store(Path(name, f"app{turn}")) as store:
                keys = list(items) if turn else list(reversed(items))
                if turn:
                    commit(store, 1, {**dict.fromkeys(keys, b"before"), b"gone and gone": b"1"})
                    commit(store, 2, {b"gone and gone": None})
                for number, key in enumerate(keys[:3]):
                    commit(store, 3 + number, {key: items[key]})
                commit(store, HEIGHT, {key: items[key] for key in keys})
                snapshots = open_snapshots(Path(name, f"snapshots{turn}"))
                take(snapshots, store.committed)
                (snapshot,) = snapshots.offers()
                found.append((snapshot.SerializeToString(), chunks_of(snapshots, snapshot), store.committed.app_hash))
        assert found[0] == found[1]


def test_the_chunks_hold_the_whole_state_in_pieces_of_the_size_asked_for(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    metadata = Metadata.from_bytes(peer.snapshot.metadata)
    assert metadata.app_hash() == peer.app_hash
    assert peer.snapshot.chunks == metadata.num_chunks == len(peer.chunks) > 4
    assert max(map(len, peer.chunks)) <= 4096
    found = [item for i, data in enumerate(peer.chunks) for item in verify_chunk(metadata, i, data).items]
    assert dict(found) == some_state()


def test_a_small_state_is_one_chunk(tmp_path: Path) -> None:
    peer = Peer(tmp_path, {b"a": b"1"})
    assert peer.chunks == [bytes.fromhex("000000010000000100000001") + b"a1"]


def test_chunks_without_items_are_not_empty_since_an_empty_one_would_be_a_missing_one(tmp_path: Path) -> None:
    peer = Peer(tmp_path, {b"a": b"1" * 300, b"b": b"2" * 300}, max_chunk_bytes=400)
    assert b"\x00\x00\x00\x00" in peer.chunks or peer.snapshot.chunks == 2
    assert all(peer.chunks)


# --- when -----------------------------------------------------------------------------------------------------------
def test_they_are_taken_at_the_interval_and_the_last_ones_are_kept(store: Store, tmp_path: Path) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots", interval_blocks=3)
    for height in range(HEIGHT + 1, HEIGHT + 12):
        commit(store, height, {b"height": b"%d" % height})
        take(snapshots, store.committed)
    assert [snapshot.height for snapshot in snapshots.offers()] == [21, 18]
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == ["18", "21"]
    again = open_snapshots(tmp_path / "snapshots", interval_blocks=3, keep=1)
    assert [snapshot.height for snapshot in again.offers()] == [21]
    store.close()


def test_none_are_taken_with_interval_zero(store: Store, tmp_path: Path) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots", interval_blocks=0)
    take(snapshots, store.committed)
    assert snapshots.offers() == []
    store.close()


class Gate:
    """Holds the thread that takes a snapshot until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
        self._place = place
        self._reached, self._open = threading.Event(), threading.Event()
        monkeypatch.setattr(taking, "reach", self._wait)

    def _wait(self, name: str) -> None:
        if name == self._place:
            self._reached.set()
            assert self._open.wait(30)

    def reached(self) -> None:
        assert self._reached.wait(30)

    def open(self) -> None:
        self._open.set()


def test_blocks_go_on_beside_and_the_snapshot_stays_at_its_height(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_hash = store.committed.app_hash
    gate = Gate(monkeypatch, "snapshot.begin")
    snapshots = open_snapshots(tmp_path / "snapshots", interval_blocks=1)
    snapshots.after_commit(store.committed)
    gate.reached()
    for height in range(HEIGHT + 1, HEIGHT + 4):
        commit(store, height, {b"table/1": b"later", b"more/%d" % height: b"1"})
        snapshots.after_commit(store.committed)
    assert snapshots.offers() == []
    gate.open()
    assert snapshots.wait(30)
    (snapshot,) = snapshots.offers()
    assert snapshot.height == HEIGHT
    assert Metadata.from_bytes(snapshot.metadata).app_hash() == app_hash
    store.close()


def test_closing_breaks_off_what_is_being_taken(store: Store, tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots", interval_blocks=HEIGHT, keep=2, reserve_bytes=0, pause_s=0.2)
    commit(store, 2 * HEIGHT, {b"much/%d" % i: b"v" for i in range(20_000)})
    snapshots.after_commit(store.committed)
    snapshots.close()
    assert snapshots.offers() == []
    assert list((tmp_path / "snapshots").iterdir()) == []
    store.close()


# --- serving --------------------------------------------------------------------------------------------------------
def test_chunks_that_are_not_there_are_answered_with_nothing(store: Store, tmp_path: Path) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots")
    take(snapshots, store.committed)
    (snapshot,) = snapshots.offers()
    assert snapshots.load_chunk(HEIGHT, 1, 0)
    for height, format, index in ((HEIGHT + 1, 1, 0), (HEIGHT, 2, 0), (HEIGHT, 1, snapshot.chunks), (2**64 - 1, 1, 0)):
        assert snapshots.load_chunk(height, format, index) == b""
    shutil.rmtree(tmp_path / "snapshots" / str(HEIGHT))
    assert snapshots.load_chunk(HEIGHT, 1, 0) == b""
    store.close()


def test_leftovers_and_damaged_snapshots_are_removed_at_start(tmp_path: Path) -> None:
    Peer(tmp_path)
    folder = tmp_path / "snapshots"
    for name in ("20", "30", "40", "50.partial", "junk", "60"):
        shutil.copytree(folder / "10", folder / name)
    (folder / "70").write_text("a file")
    (folder / "20/manifest").write_bytes(b"\x91" * 100)
    (folder / "30/chunks").write_bytes(b"short")
    (folder / "40/manifest").unlink()
    assert [snapshot.height for snapshot in open_snapshots(folder).offers()] == [10]
    assert [path.name for path in folder.iterdir()] == ["10"]


# --- trouble --------------------------------------------------------------------------------------------------------
def test_a_disk_without_room_is_left_as_it_was(store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots", reserve_bytes=1 << 60)
    take(snapshots, store.committed)
    assert snapshots.offers() == []
    assert list((tmp_path / "snapshots").iterdir()) == []
    assert "are not for snapshots" in capfd.readouterr().out
    store.close()


@pytest.mark.parametrize("after_bytes", [0, 3_000, 30_000, 60_000])
def test_a_disk_that_fills_up_on_the_way_costs_only_the_snapshot(
    after_bytes: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots")
    written = 0

    def take_room(self: object, num_bytes: int) -> None:
        nonlocal written
        written += num_bytes
        if written > after_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writing.Room, "take", take_room)
        take(snapshots, store.committed)
    assert snapshots.offers() == []
    assert list((tmp_path / "snapshots").iterdir()) == []
    take(snapshots, store.committed)
    assert len(snapshots.offers()) == 1
    store.close()


def test_a_state_that_does_not_lead_to_its_app_hash_is_never_offered(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshots = open_snapshots(tmp_path / "snapshots")
    wrong = CommittedState(store._db.snapshot(), HEIGHT, b"\x00" * 32)
    take(snapshots, wrong)
    assert snapshots.offers() == []
    assert "do not lead to its app hash" in capfd.readouterr().out
    store.close()


@pytest.mark.parametrize("place", [name for name in failpoints.FAIL_POINTS if name.startswith("snapshot.")])
def test_a_crash_at_any_place_leaves_a_whole_snapshot_or_none(
    place: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files as they are at the moment of the crash are what the next start finds."""
    folder, crashed = tmp_path / "snapshots", tmp_path / "crashed"

    def reach(name: str) -> None:
        if name == place and not crashed.exists():
            shutil.copytree(folder, crashed)

    for module in (taking, writing):
        monkeypatch.setattr(module, "reach", reach)
    first = open_snapshots(folder)
    take(first, store.committed)
    expected = chunks_of(first, first.offers()[0])
    found = open_snapshots(crashed)
    assert len(found.offers()) == (1 if place == "snapshot.end" else 0)
    take(found, store.committed)
    assert chunks_of(found, found.offers()[0]) == expected
    assert [path.name for path in crashed.iterdir()] == [str(HEIGHT)]
    store.close()


async def test_an_application_says_what_is_wrong_with_the_folder_of_its_snapshots(tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("a file")
    process = await AppProcess(tmp_path).start()
    status, said = await process.ended()
    assert status == 2
    assert "cannot use the folder of snapshots" in said
    with Store(tmp_path / "app") as store:
        assert content(store) == {}
