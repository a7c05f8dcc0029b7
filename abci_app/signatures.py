"""Which transactions CheckTx has verified already, so that FinalizeBlock need not do it again.

It only saves time: a transaction that is missing here is verified, with the same result.
"""

import threading
from collections import OrderedDict
from typing import Final

MAX_KNOWN: Final = 100_000


class KnownSignatures:
    """Hashes of transactions with a good signature, the least recently used ones dropped first. Thread-safe."""

    def __init__(self, limit: int = MAX_KNOWN) -> None:
        self._limit = limit
        self._hashes: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, tx_hash: bytes) -> None:
        with self._lock:
            self._hashes[tx_hash] = None
            self._hashes.move_to_end(tx_hash)
            if len(self._hashes) > self._limit:
                self._hashes.popitem(last=False)

    def __contains__(self, tx_hash: bytes) -> bool:
        with self._lock:
            if tx_hash not in self._hashes:
                return False
            self._hashes.move_to_end(tx_hash)
            return True

    def __len__(self) -> int:
        return len(self._hashes)
