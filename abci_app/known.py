"""The memory of transactions that CheckTx found good.

One transaction is looked at many times: by CheckTx, again after each block while it waits, by PrepareProposal,
ProcessProposal and FinalizeBlock. What depends on its bytes alone (decoding, form, signature) is done the first time.
The memory only saves time: what is missing from it is parsed and verified anew, with the same result.
"""

import threading
from collections import OrderedDict
from typing import Final

from abci_app.parsed import ParsedTransaction

MAX_KNOWN: Final = 50_000
"""Five times what waits in the mempool: whatever is checked is still known when its block comes."""
MAX_KNOWN_BYTES: Final = 64 * 1024 * 1024
"""Of raw transactions; the parsed form takes a few times that."""


class KnownTransactions:
    """Transactions whose form and signature are good, the oldest dropped first. Thread-safe."""

    def __init__(self, limit: int = MAX_KNOWN, limit_bytes: int = MAX_KNOWN_BYTES) -> None:
        self._limit, self._limit_bytes = limit, limit_bytes
        self._by_bytes: OrderedDict[bytes, ParsedTransaction] = OrderedDict()
        """Oldest first. A plain dict finds its first entry ever more slowly while entries are taken from there."""
        self._size_bytes = 0
        self._lock = threading.Lock()

    def find(self, tx: bytes) -> ParsedTransaction | None:
        """The transaction with exactly these bytes, when it is known to be good."""
        return self._by_bytes.get(tx)

    def add(self, parsed: ParsedTransaction) -> None:
        """Remember a transaction that was verified just now."""
        with self._lock:
            if parsed.raw in self._by_bytes:
                return
            self._by_bytes[parsed.raw] = parsed
            self._size_bytes += len(parsed.raw)
            while len(self._by_bytes) > self._limit or self._size_bytes > self._limit_bytes:
                oldest, _ = self._by_bytes.popitem(last=False)
                self._size_bytes -= len(oldest)

    def __len__(self) -> int:
        return len(self._by_bytes)
