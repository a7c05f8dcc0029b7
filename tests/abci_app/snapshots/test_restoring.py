"""Restoring: verified piece by piece, taken up again, begun anew, and never half there."""

import shutil
from pathlib import Path

import plyvel
import pytest

from abci_app import failpoints
from abci_app.application import Application
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots import restoring
from abci_app.snapshots.form import Metadata, snapshot_hash
from abci_app.snapshots.staging import staging_path
from abci_app.store import Store, restored_path
from abci_app.tables import ACCOUNTS
from tests.abci_app.kit import ALICE, BOB, RICH, init_chain, run_block, transfer
from tests.abci_app.snapshots.kit import (
    APPLY,
    HEIGHT,
    OFFER,
    Peer,
    chunk,
    commit,
    content,
    open_snapshots,
    restore,
    some_state,
)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    return Peer(tmp_path_factory.mktemp("peer"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    """Of the same chain, a little different."""
    return Peer(tmp_path_factory.mktemp("other"), {**some_state(), b"table/7": b"other"})


def test_a_restored_store_is_the_state_at_once_and_after_a_restart(peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "app"
    with Store(path) as store:
        application = Application(store)
        early = store.committed
        restore(application, peer)
        info = application.info(pb.RequestInfo())
        assert (info.last_block_height, info.last_block_app_hash) == (HEIGHT, peer.app_hash)
        assert content(store) == some_state()
        assert early.get(b"table/1") is None
        assert store.is_fresh_restore
        application.close()
    assert restored_path(path).exists()
    with Store(path) as store:
        assert store.check_integrity() == len(some_state())
        assert (store.committed.height, store.committed.app_hash) == (HEIGHT, peer.app_hash)
        commit(store, HEIGHT + 1, {b"new": b"1"})
        assert not store.is_fresh_restore
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["app"]


def test_blocks_after_a_restore_survive_the_restart(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        restore(application, peer)
        commit(store, HEIGHT + 1, {b"new": b"1"})
        application.close()
    with Store(tmp_path / "app") as store:
        assert store.committed.height == HEIGHT + 1
        assert store.committed.get(b"new") == b"1"


def test_chain_nonces_and_validators_come_with_the_state_and_the_next_block_is_the_same(tmp_path: Path) -> None:
    """FAULTS C19."""
    with Store(tmp_path / "one/app") as one, Store(tmp_path / "two/app") as two:
        snapshots = open_snapshots(tmp_path / "one/snapshots", interval_blocks=2)
        old, new = Application(one, snapshots), Application(two)
        old.init_chain(init_chain())
        run_block(old, 1, [transfer(0)])
        run_block(old, 2, [transfer(1), transfer(0, sender=BOB, to=ALICE)])
        assert snapshots.wait(30)
        (snapshot,) = old.list_snapshots(pb.RequestListSnapshots()).snapshots
        offer = pb.RequestOfferSnapshot(snapshot=snapshot, app_hash=one.committed.app_hash)
        assert new.offer_snapshot(offer).result == OFFER.ACCEPT
        for index in range(snapshot.chunks):
            request = pb.RequestLoadSnapshotChunk(height=2, format=1, chunk=index)
            data = old.load_snapshot_chunk(request).chunk
            assert new.apply_snapshot_chunk(chunk(index, data)).result == APPLY.ACCEPT
        assert new.info(pb.RequestInfo()) == old.info(pb.RequestInfo())
        assert content(one) == content(two)
        for application in (old, new):
            account = ACCOUNTS.get(application._store.committed, ALICE.address)
            assert account is not None
            assert account.nonce == 2
            assert account.balance < RICH
            checks = [application.check_tx(pb.RequestCheckTx(tx=transfer(nonce))).code for nonce in (1, 2)]
            assert checks[0] != 0
            assert checks[1] == 0
        assert run_block(old, 3, [transfer(2)]) == run_block(new, 3, [transfer(2)])
        old.close()
        new.close()


# --- offers ---------------------------------------------------------------------------------------------------------
def altered(peer: Peer, **changes: object) -> pb.RequestOfferSnapshot:
    offer = peer.offer()
    for name, value in changes.items():
        setattr(offer.snapshot, name, value)
    return offer


def with_metadata(peer: Peer, metadata: bytes, chunks: int) -> pb.RequestOfferSnapshot:
    """An offer that is sound but for its metadata."""
    return altered(peer, metadata=metadata, hash=snapshot_hash(HEIGHT, metadata), chunks=chunks)


def test_lying_offers_are_refused_with_their_senders(peer: Peer, other: Peer, tmp_path: Path) -> None:
    true = Metadata.from_bytes(peer.snapshot.metadata)
    flipped = bytes([true.roots[0] ^ 1]) + true.roots[1:]
    lies = [
        altered(peer, hash=b"\x00" * 32),
        altered(peer, chunks=peer.snapshot.chunks + 1),
        altered(peer, height=HEIGHT + 1),
        altered(peer, height=2**64 - 1),
        with_metadata(peer, Metadata(true.depth, flipped).to_bytes(), peer.snapshot.chunks),
        with_metadata(peer, Metadata(0, true.roots[:32]).to_bytes(), 1),
        with_metadata(peer, Metadata(true.depth, true.roots[:-32]).to_bytes(), peer.snapshot.chunks),
        with_metadata(peer, Metadata(17, true.roots).to_bytes(), 1 << 17),
        with_metadata(peer, Metadata(-1, b"").to_bytes(), 0),
        with_metadata(peer, peer.snapshot.metadata + b"\x00", peer.snapshot.chunks),
        with_metadata(peer, b"", 0),
        with_metadata(peer, b"\x91" * 5000, 1),
        pb.RequestOfferSnapshot(snapshot=other.snapshot, app_hash=peer.app_hash),
    ]
    with Store(tmp_path / "app") as store:
        application = Application(store)
        assert [application.offer_snapshot(lie).result for lie in lies] == [OFFER.REJECT_SENDER] * len(lies)
        unknown = altered(peer, format=2)
        assert application.offer_snapshot(unknown).result == OFFER.REJECT_FORMAT
        assert application.apply_snapshot_chunk(chunk(0, peer.chunks[0])).result == APPLY.ABORT
        restore(application, peer)
        application.close()


def test_a_store_with_blocks_of_its_own_is_never_replaced(peer: Peer, tmp_path: Path) -> None:
    """FAULTS C2: only CometBFT's data was reset."""
    with Store(tmp_path / "app") as store:
        commit(store, 3, {b"own": b"1"})
        application = Application(store)
        assert application.offer_snapshot(peer.offer()).result == OFFER.ABORT
        assert application.apply_snapshot_chunk(chunk(0, peer.chunks[0])).result == APPLY.ABORT
        assert content(store) == {b"own": b"1"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["app"]


def test_an_engine_that_lost_track_of_a_finished_restore_may_have_it_again(
    peer: Peer, other: Peer, tmp_path: Path
) -> None:
    """CometBFT died after the restore and before it wrote its own state: it begins at the offer again."""
    with Store(tmp_path / "app") as store:
        application = Application(store)
        restore(application, peer)
        restore(application, peer)
        assert application.offer_snapshot(other.offer()).result == OFFER.ABORT
        application.close()
    with Store(tmp_path / "app") as store:
        application = Application(store)
        restore(application, peer)
        restore(application, other)
        assert store.committed.app_hash == other.app_hash
        application.close()


# --- chunks ---------------------------------------------------------------------------------------------------------
def test_a_wrong_chunk_is_asked_for_again_from_somebody_else(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        assert application.offer_snapshot(peer.offer()).result == OFFER.ACCEPT
        for index, data in enumerate(peer.chunks):
            bad = data[:-1] + bytes([data[-1] ^ 1])
            answer = application.apply_snapshot_chunk(chunk(index, bad, "liar"))
            assert answer.result == APPLY.RETRY
            assert (list(answer.refetch_chunks), list(answer.reject_senders)) == ([index], ["liar"])
            assert store.committed.height == 0
            assert application.apply_snapshot_chunk(chunk(index, data)).result == APPLY.ACCEPT
        assert store.committed.app_hash == peer.app_hash
        assert store.check_integrity() == len(some_state())
        application.close()


def test_chunks_in_any_order_and_twice(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index in reversed(range(len(peer.chunks))):
            for _ in range(2):
                assert application.apply_snapshot_chunk(chunk(index, peer.chunks[index])).result == APPLY.ACCEPT
        assert store.committed.app_hash == peer.app_hash
        past_the_end = application.apply_snapshot_chunk(chunk(len(peer.chunks), b""))
        assert past_the_end.result == APPLY.ABORT
        application.close()


def test_a_restore_goes_on_after_a_restart_with_the_chunks_it_had(peer: Peer, tmp_path: Path) -> None:
    half = len(peer.chunks) // 2
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index in range(half):
            application.apply_snapshot_chunk(chunk(index, peer.chunks[index]))
        application.close()
    with Store(tmp_path / "app") as store:
        assert store.committed.height == 0
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index in range(half):
            assert application.apply_snapshot_chunk(chunk(index, b"not looked at")).result == APPLY.ACCEPT
        assert application.apply_snapshot_chunk(chunk(half, b"looked at")).result == APPLY.RETRY
        for index in range(half, len(peer.chunks)):
            assert application.apply_snapshot_chunk(chunk(index, peer.chunks[index])).result == APPLY.ACCEPT
        assert content(store) == some_state()
        application.close()


def test_another_offer_in_the_middle_begins_anew(peer: Peer, other: Peer, tmp_path: Path) -> None:
    """FAULTS C19: nothing of the first snapshot is left in the state of the second."""
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index, data in enumerate(peer.chunks[:-1]):
            application.apply_snapshot_chunk(chunk(index, data))
        restore(application, other)
        assert store.committed.app_hash == other.app_hash
        assert content(store) == {**some_state(), b"table/7": b"other"}
        assert store.check_integrity() == len(some_state())
        application.close()


def test_a_damaged_half_restore_is_thrown_away(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index, data in enumerate(peer.chunks[:-1]):
            application.apply_snapshot_chunk(chunk(index, data))
        application.close()
    for path in staging_path(tmp_path / "app").glob("MANIFEST-*"):
        path.write_bytes(b"damaged")
    with Store(tmp_path / "app") as store:
        application = Application(store)
        restore(application, peer)
        assert store.check_integrity() == len(some_state())
        application.close()


def test_a_chunk_that_changed_on_disk_is_found_before_the_state_counts(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        for index, data in enumerate(peer.chunks[:-1]):
            application.apply_snapshot_chunk(chunk(index, data))
        application.close()
        database = plyvel.DB(str(staging_path(store.path)))
        key, value = next(iter(database.iterator(prefix=b"b")))
        database.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        database.close()
        application.offer_snapshot(peer.offer())
        last = len(peer.chunks) - 1
        assert application.apply_snapshot_chunk(chunk(last, peer.chunks[last])).result == APPLY.ABORT
        assert store.committed.height == 0
        restore(application, peer)
        application.close()


def test_a_disk_that_fails_ends_the_restore_and_not_the_node(
    peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())

        def full(*_: object) -> None:
            raise plyvel.IOError("No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("abci_app.snapshots.staging.Staging.put", full)
            assert application.apply_snapshot_chunk(chunk(0, peer.chunks[0])).result == APPLY.ABORT
        with monkeypatch.context() as patch:
            patch.setattr("abci_app.snapshots.staging._take_up", full)
            assert application.offer_snapshot(peer.offer()).result == OFFER.ABORT
        with monkeypatch.context() as patch:
            patch.setattr(restoring.os, "rename", full)
            application.offer_snapshot(peer.offer())
            results = [application.apply_snapshot_chunk(chunk(i, data)).result for i, data in enumerate(peer.chunks)]
            assert results == [APPLY.ACCEPT] * (len(results) - 1) + [APPLY.ABORT]
        assert store.committed.height == 0
        restore(application, peer)
        application.close()


def test_what_an_unfinished_restore_left_goes_once_the_node_has_blocks(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        application.offer_snapshot(peer.offer())
        application.apply_snapshot_chunk(chunk(0, peer.chunks[0]))
        application.close()
        assert staging_path(store.path).exists()
        commit(store, 1, {b"own": b"1"})
        Application(store)
        assert not staging_path(store.path).exists()


def test_a_restored_state_in_use_is_not_moved_by_a_second_process(peer: Peer, tmp_path: Path) -> None:
    with Store(tmp_path / "app") as store:
        application = Application(store)
        restore(application, peer)
        with pytest.raises(Exception, match="in use by another process"):
            Store(tmp_path / "app")
        assert content(store) == some_state()
        application.close()


# --- crashes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [name for name in failpoints.FAIL_POINTS if name.startswith("restore.")])
def test_a_crash_at_any_place_leaves_the_old_or_the_whole_new_state(
    place: str, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files as they are at the moment of the crash are what the next start finds."""
    live, crashed = tmp_path / "live", tmp_path / "crashed"

    def reach(name: str) -> None:
        if name == place and not crashed.exists():
            shutil.copytree(live, crashed, ignore=shutil.ignore_patterns("LOCK"))

    monkeypatch.setattr(restoring, "reach", reach)
    with Store(live / "app") as store:
        application = Application(store)
        restore(application, peer)
        application.close()
    assert crashed.exists()
    with Store(crashed / "app") as store:
        done = place in ("restore.renamed", "restore.end")
        assert content(store) == (some_state() if done else {})
        assert store.committed.height == (HEIGHT if done else 0)
        application = Application(store)
        restore(application, peer)
        assert content(store) == some_state()
        assert store.check_integrity() == len(some_state())
        application.close()
