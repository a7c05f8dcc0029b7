"""What a worker has promised on chain and must be able to open later, kept on disk from before the promise is sent.

A worker that is killed between CommitUpdate and RevealUpdate finds the payload, the salt and the blob's header here,
so it reveals after its restart, and never commits twice.
"""

from pathlib import Path

import msgspec

from abci_app.transactions import update_commitment
from node.files import write_atomically
from primitives.blobs import BlobHeader
from primitives.encoding import EncodingError, decode, encode


class Intent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One round's update as it was promised."""

    chain_id: str
    job_id: int
    round_index: int
    base_round: int
    worker: bytes
    header: BlobHeader
    set_version: int
    """ServiceSet that the blob's rows were cut for."""
    payload: bytes
    salt: bytes
    samples: int
    loss_micro: int

    @property
    def commitment(self) -> bytes:
        """What CommitUpdate carries, 32 bytes."""
        return update_commitment(
            self.chain_id,
            self.job_id,
            self.round_index,
            self.worker,
            self.header.commitment,
            self.salt,
            self.samples,
            self.loss_micro,
        )


class IntentStore:
    """Intents as files, one for each round, whole or absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, intent: Intent) -> None:
        """Durable when this returns.

        Raises: OSError when it cannot be written.
        """
        write_atomically(self._path(intent.round_index), encode(intent), mode=0o600)

    def get(self, round_index: int) -> Intent | None:
        """The intent of that round; None when there is none or the file is damaged (it then cannot be opened)."""
        try:
            return decode(self._path(round_index).read_bytes(), Intent)
        except (FileNotFoundError, EncodingError):
            return None

    def rounds(self) -> list[int]:
        """Indices of the rounds with an intent, ascending."""
        return sorted(int(path.stem) for path in self._folder.glob("*.intent") if path.stem.isdecimal())

    def drop(self, round_index: int) -> None:
        self._path(round_index).unlink(missing_ok=True)

    def _path(self, round_index: int) -> Path:
        return self._folder / f"{round_index}.intent"
