"""The application with small chunks, so that a small state makes many; and its hostile kinds. For tests only.

    python -m tests.abci_app.hostile_snapshots     (OUTERSTEP_TEST_ROLE: honest, wrong_chunks, lying_offers)

`wrong_chunks` offers what honest nodes offer and changes a bit of every chunk that it serves. `lying_offers` offers,
besides, snapshots of later heights whose roots lead nowhere.
"""

import os
import sys
from typing import Any, Final

from abci_app import __main__ as process
from abci_app.application import Application
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.form import snapshot_hash
from abci_app.snapshots.taking import Snapshots

ROLE_VARIABLE: Final = "OUTERSTEP_TEST_ROLE"
CHUNK_BYTES: Final = 1024


class SmallSnapshots(Snapshots):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, max_chunk_bytes=CHUNK_BYTES, **options)


class WrongChunks(Application):
    def load_snapshot_chunk(self, request: pb.RequestLoadSnapshotChunk) -> pb.ResponseLoadSnapshotChunk:
        good = super().load_snapshot_chunk(request).chunk
        return pb.ResponseLoadSnapshotChunk(chunk=good[:-1] + bytes([good[-1] ^ 1]) if good else b"")


class LyingOffers(Application):
    def list_snapshots(self, request: pb.RequestListSnapshots) -> pb.ResponseListSnapshots:
        true = super().list_snapshots(request).snapshots
        return pb.ResponseListSnapshots(snapshots=[*map(lie_of, true), *true])


def lie_of(true: pb.Snapshot) -> pb.Snapshot:
    """As `true`, one height later, with a changed root and a hash that fits."""
    metadata = true.metadata[:-1] + bytes([true.metadata[-1] ^ 1])
    height = true.height + 1
    hash_ = snapshot_hash(height, metadata)
    return pb.Snapshot(height=height, format=true.format, chunks=true.chunks, hash=hash_, metadata=metadata)


ROLES: Final = {"honest": Application, "wrong_chunks": WrongChunks, "lying_offers": LyingOffers}

if __name__ == "__main__":
    process.Application = ROLES[os.environ[ROLE_VARIABLE]]  # type: ignore[misc]
    process.Snapshots = SmallSnapshots  # type: ignore[misc]
    sys.exit(process.main())
