"""A node's first state out of a snapshot that peers serve: offer, chunk by chunk, and the step that makes it count.

Everything is verified before it is used: the offer against the app hash that CometBFT's light client trusts, each
chunk against the offer. Verified chunks collect in a database beside the store (DATA.restoring, see `Staging`), where a
later offer of the same snapshot finds them, also after a crash; another offer begins anew. With the last chunk the
state's root is worked out once more, and one rename to `restored_path` decides: before it the node has the old (empty)
state, after it the whole new one.
"""

import os
from collections.abc import Callable
from typing import Final

import plyvel
import structlog

from abci_app.failpoints import reach
from abci_app.files import sync_folder
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.form import FORMAT, Metadata, SnapshotInvalid, snapshot_hash, verify_chunk
from abci_app.snapshots.staging import Offer, Staging, StagingWrong, discard_staging
from abci_app.store import Store, restored_path

MAX_HEIGHT: Final = 2**63 - 1

_OFFER: Final = pb.ResponseOfferSnapshot
_APPLY: Final = pb.ResponseApplySnapshotChunk
_log = structlog.get_logger()


class Restorer:
    """Answers OfferSnapshot and ApplySnapshotChunk for one store. Calls come one at a time."""

    def __init__(self, store: Store, on_restored: Callable[[], None]) -> None:
        """`on_restored` is called once the store holds the restored state.

        Raises: OSError when what an earlier restore left cannot be removed.
        """
        self._store = store
        self._on_restored = on_restored
        self._offer: Offer | None = None
        self._metadata = Metadata(0, b"")
        self._staging: Staging | None = None
        """None between offers, and once the store holds what was offered."""
        if store.committed.height and not store.is_fresh_restore:
            discard_staging(store.path)

    def close(self) -> None:
        """Let go of the database of a restore that is not finished; it can be taken up again."""
        if self._staging is not None:
            self._staging.close()
        self._offer = self._staging = None

    def offer(self, request: pb.RequestOfferSnapshot) -> pb.ResponseOfferSnapshot:
        """Whether the chunks of this snapshot shall come."""
        snapshot = request.snapshot
        if not self._may_restore(snapshot.height, request.app_hash):
            return _OFFER(result=_OFFER.ABORT)
        if snapshot.format != FORMAT:
            _log.info("snapshot refused: unknown format", height=snapshot.height, format=snapshot.format)
            return _OFFER(result=_OFFER.REJECT_FORMAT)
        try:
            metadata = check_offer(snapshot, request.app_hash)
        except SnapshotInvalid as error:
            _log.warning("snapshot and its senders refused", height=snapshot.height, reason=str(error))
            return _OFFER(result=_OFFER.REJECT_SENDER)
        try:
            self._begin(Offer(snapshot.height, request.app_hash, snapshot.metadata), metadata)
        except (OSError, plyvel.Error) as error:
            _log.error("a snapshot cannot be restored here", height=snapshot.height, reason=str(error))
            self.close()
            return _OFFER(result=_OFFER.ABORT)
        reach("restore.begin")
        return _OFFER(result=_OFFER.ACCEPT)

    def apply(self, request: pb.RequestApplySnapshotChunk) -> pb.ResponseApplySnapshotChunk:
        """Verify one chunk and keep it; the last one makes the snapshot the store's state."""
        offer, index = self._offer, request.index
        if offer is None or index >= self._metadata.num_chunks:
            _log.error("a chunk that no accepted snapshot has", chunk=index)
            return _APPLY(result=_APPLY.ABORT)
        if self._staging is None or self._staging.has(index):
            return _APPLY(result=_APPLY.ACCEPT)
        try:
            chunk = verify_chunk(self._metadata, index, request.chunk)
        except SnapshotInvalid as error:
            _log.warning("wrong chunk of a snapshot", chunk=index, sender=request.sender, reason=str(error))
            senders = [request.sender] if request.sender else []
            return _APPLY(result=_APPLY.RETRY, refetch_chunks=[index], reject_senders=senders)
        try:
            self._staging.put(index, chunk)
            reach("restore.chunk_applied")
            if self._staging.num_held == self._metadata.num_chunks:
                self._finish(offer, self._staging)
        except (OSError, plyvel.Error, StagingWrong) as error:
            _log.error("restoring a snapshot failed", height=offer.height, chunk=index, reason=str(error))
            self.close()
            return _APPLY(result=_APPLY.ABORT)
        return _APPLY(result=_APPLY.ACCEPT)

    def _may_restore(self, height: int, app_hash: bytes) -> bool:
        committed = self._store.committed
        if committed.height == 0:
            return True
        if not self._store.is_fresh_restore:
            _log.error(
                "CometBFT asks for a snapshot, but the application has blocks of its own: its data was lost or reset "
                "alone. Start over from the other nodes: outerstep node reset",
                height=committed.height,
            )
            return False
        same = (committed.height, committed.app_hash) == (height, app_hash)
        if restored_path(self._store.path).exists() and not same:
            _log.warning("another snapshot can be restored after a restart", height=height)
            return False
        return True

    def _begin(self, offer: Offer, metadata: Metadata) -> None:
        """Take the offer up where an earlier one of the same snapshot ended, else from nothing.

        Raises: OSError, plyvel.Error.
        """
        self.close()
        committed = self._store.committed
        if (committed.height, committed.app_hash) != (offer.height, offer.app_hash):
            self._staging = Staging(self._store.path, offer)
        held = metadata.num_chunks if self._staging is None else self._staging.num_held
        self._offer, self._metadata = offer, metadata
        _log.info("restoring a snapshot", height=offer.height, chunks=metadata.num_chunks, held_already=held)

    def _finish(self, offer: Offer, staging: Staging) -> None:
        """Raises: OSError, plyvel.Error, StagingWrong before the rename; StoreError after it."""
        staging.finish()
        self._staging = None
        reach("restore.complete")
        restored = restored_path(self._store.path)
        os.rename(staging.path, restored)
        sync_folder(restored.parent)
        reach("restore.renamed")
        self._store.switch_to_restored()
        self._on_restored()
        _log.info("snapshot restored", height=offer.height, app_hash=offer.app_hash.hex())
        reach("restore.end")


def check_offer(snapshot: pb.Snapshot, app_hash: bytes) -> Metadata:
    """The metadata of a snapshot (of our format) whose chunks lead to `app_hash`.

    Raises: SnapshotInvalid: whoever offers this is not honest.
    """
    if not 0 < snapshot.height <= MAX_HEIGHT:
        raise SnapshotInvalid(f"its height is {snapshot.height}")
    metadata = Metadata.from_bytes(snapshot.metadata)
    if snapshot.chunks != metadata.num_chunks:
        raise SnapshotInvalid(f"it says {snapshot.chunks} chunks, and its metadata {metadata.num_chunks}")
    if snapshot.hash != snapshot_hash(snapshot.height, snapshot.metadata):
        raise SnapshotInvalid("its hash is not that of its metadata")
    if metadata.app_hash() != app_hash:
        raise SnapshotInvalid("its roots do not lead to the app hash of its height")
    return metadata
