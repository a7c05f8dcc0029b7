"""Which nonces wait in this node's mempool, so that transactions that no block can take do not wait for ever.

CometBFT hands a proposer the mempool in order, up to the size of a block. Transactions behind a missing nonce cost
nothing and would stay at its head: enough of them, and every block is empty. Local to the node, no part of consensus.
"""

import threading
from typing import Final

MAX_GAP_BLOCKS: Final = 3
"""How long a transaction may wait for an earlier one of its sender that has not arrived."""


class WaitingNonces:
    """What CheckTx has let in since the last block, and what waited before it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[bytes, dict[int, bytes]] = {}
        """Sender -> nonce -> hash of the transaction."""
        self._now: dict[bytes, dict[int, bytes]] = {}
        self._gaps_before: dict[bytes, int] = {}
        """Hash of a transaction behind a gap -> for how many blocks."""
        self._gaps: dict[bytes, int] = {}

    def next_block(self) -> None:
        """A block was committed: from now on CometBFT checks again what still waits."""
        with self._lock:
            self._before, self._now = self._now, {}
            self._gaps_before, self._gaps = self._gaps, {}

    def add(self, sender: bytes, nonce: int, tx_hash: bytes) -> None:
        """CheckTx has let a new transaction in."""
        with self._lock:
            now = self._now.get(sender)
            if now is None:
                self._now[sender] = {nonce: tx_hash}
            else:
                now[nonce] = tx_hash

    def may_stay(self, sender: bytes, nonce: int, tx_hash: bytes, *, next_nonce: int) -> bool:
        """RECHECK: whether the transaction may go on waiting; `next_nonce` is the sender's committed one.

        Not when another one has its nonce, nor when an earlier nonce is missing for too long.
        """
        with self._lock:
            now = self._now.setdefault(sender, {})
            if now.get(nonce, tx_hash) != tx_hash:
                return False
            if nonce > next_nonce and self._is_behind_a_gap(sender, nonce, next_nonce):
                blocks = self._gaps_before.get(tx_hash, 0) + 1
                if blocks > MAX_GAP_BLOCKS:
                    return False
                self._gaps[tx_hash] = blocks
            now[nonce] = tx_hash
            return True

    def _is_behind_a_gap(self, sender: bytes, nonce: int, next_nonce: int) -> bool:
        now, before = self._now[sender], self._before.get(sender, {})
        return any(earlier not in now and earlier not in before for earlier in range(next_nonce, nonce))
