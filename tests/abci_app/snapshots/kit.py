"""Stores with some state in them, their snapshots, and a whole restore through the ABCI calls."""

from collections.abc import Callable, Mapping
from pathlib import Path

from abci_app.application import Application
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.taking import Snapshots
from abci_app.store import Store

HEIGHT = 10
SMALL_CHUNK = 4096
"""So that a few hundred items make many chunks."""
OFFER = pb.ResponseOfferSnapshot
APPLY = pb.ResponseApplySnapshotChunk

Tamper = Callable[[int, bytes], bytes]


def some_state(count: int = 600) -> dict[bytes, bytes]:
    return {b"table/%d" % i: b"value %d " % i * (1 + i % 7) for i in range(count)}


def commit(store: Store, height: int, writes: Mapping[bytes, bytes | None]) -> None:
    store.commit(store.prepare(height, writes))


def open_snapshots(folder: Path, **options: int) -> Snapshots:
    settings = {"interval_blocks": HEIGHT, "keep": 2, "max_chunk_bytes": SMALL_CHUNK, "reserve_bytes": 0, **options}
    return Snapshots(folder, pause_s=0.0, **settings)


class Peer:
    """A node with a state and its snapshot of HEIGHT."""

    def __init__(self, folder: Path, items: Mapping[bytes, bytes] | None = None, **options: int) -> None:
        with Store(folder / "app") as store:
            commit(store, HEIGHT, some_state() if items is None else items)
            self.app_hash = store.committed.app_hash
            self._snapshots = open_snapshots(folder / "snapshots", **options)
            self._snapshots.after_commit(store.committed)
            assert self._snapshots.wait(30)
        (self.snapshot,) = self._snapshots.offers()
        self.chunks = [self._snapshots.load_chunk(HEIGHT, 1, i) for i in range(self.snapshot.chunks)]

    def offer(self) -> pb.RequestOfferSnapshot:
        return pb.RequestOfferSnapshot(snapshot=self.snapshot, app_hash=self.app_hash)


def chunk(index: int, data: bytes, sender: str = "peer") -> pb.RequestApplySnapshotChunk:
    return pb.RequestApplySnapshotChunk(index=index, chunk=data, sender=sender)


def restore(application: Application, peer: Peer) -> None:
    """Offer and apply everything; each answer must be ACCEPT."""
    assert application.offer_snapshot(peer.offer()).result == OFFER.ACCEPT
    for index, data in enumerate(peer.chunks):
        assert application.apply_snapshot_chunk(chunk(index, data)).result == APPLY.ACCEPT


def content(store: Store) -> dict[bytes, bytes]:
    return dict(store.committed.iterate(b""))
