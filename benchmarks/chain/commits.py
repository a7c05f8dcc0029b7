"""How long a block takes on states of different sizes: on a real store, through the application, without an engine.

CometBFT's Commit only writes what FinalizeBlock has worked out, the next state root included. What may grow with the
state is both together, so `commit_ms` is the time of the state root and of Commit. The store is opened anew before the
first block, so nothing is in memory: these blocks are told apart from those of a node that has run for a while.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import structlog

from abci_app import records
from abci_app.application import Application
from abci_app.chain import CHAIN, Chain
from abci_app.execution import init_genesis
from abci_app.messages import Transfer
from abci_app.params import Genesis
from abci_app.server import abci_pb2 as pb
from abci_app.state import Branch
from abci_app.store import PreparedCommit, Store
from abci_app.tables import ACCOUNTS
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from primitives.hashing import sha256
from primitives.keys import PrivateKey

CHAIN_ID: Final = "bench"
BALANCE: Final = 10**12
MAX_BLOCK_BYTES: Final = 2 * 1024 * 1024
TXS_PER_BLOCK: Final = 500
COLD_BLOCKS: Final = 20
WARM_UP_BLOCKS: Final = 200
"""The cold ones included; 200,000 accounts chosen by chance are enough to have met nearly all of the 65,536 buckets."""
MEASURED_BLOCKS: Final = 40
MAX_PAYERS: Final = 20_000
FILLED_AT_ONCE: Final = 100_000


class CommitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the blocks after the warm-up, milliseconds for one block."""

    accounts: int
    txs_per_block: int
    blocks: int
    commit_ms: float
    """State root and Commit."""
    commit_ms_max: float
    cold_commit_ms: float
    """Median of the first blocks after the store was opened."""
    state_root_ms: float
    write_ms: float
    """Commit alone: one batch, synced to the disk."""
    finalize_ms: float
    """FinalizeBlock, the state root included; signatures were verified by CheckTx before."""


def measure_commits(
    accounts: int,
    on_progress: Callable[[float], None],
    *,
    warm_up_blocks: int = WARM_UP_BLOCKS,
    blocks: int = MEASURED_BLOCKS,
) -> CommitTimes:
    """Blocks of transfers between accounts chosen by chance, on a state that has `accounts` of them.

    Raises: OSError, StoreError.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    num_blocks = warm_up_blocks + blocks
    payers = [PrivateKey.from_seed(f"payer/{n}") for n in range(min(accounts, MAX_PAYERS))]
    addresses = [key.address for key in payers]
    addresses += [sha256(number.to_bytes(8, "big"))[:20] for number in range(accounts - len(payers))]
    with TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder, "app")
        _fill(path, addresses, lambda share: on_progress(share / 2))
        with closing(_TimedStore(path)) as store:
            application = Application(store)
            try:
                times = []
                for txs in _blocks(payers, addresses, num_blocks):
                    times.append(_time_block(application, store, txs))
                    on_progress(0.5 + len(times) / num_blocks / 2)
            finally:
                application.close()
    return _summary(accounts, cold=times[:COLD_BLOCKS], warm=times[warm_up_blocks:])


class _BlockTimes(msgspec.Struct, frozen=True):
    """Seconds of one block."""

    state_root: float
    write: float
    finalize: float

    @property
    def commit(self) -> float:
        return self.state_root + self.write


class _TimedStore(Store):
    """Notes how long the last state root took."""

    state_root_s = 0.0

    def prepare(self, height: int, writes: Mapping[bytes, bytes | None]) -> PreparedCommit:
        began = time.perf_counter()
        prepared = super().prepare(height, writes)
        self.state_root_s = time.perf_counter() - began
        return prepared


def _fill(path: Path, addresses: Sequence[bytes], on_progress: Callable[[float], None]) -> None:
    """A state in which every address has a balance."""
    with Store(path) as store:
        for start in range(0, len(addresses), FILLED_AT_ONCE):
            branch = Branch(store.committed)
            if start == 0:
                init_genesis(branch, Genesis(accounts=(), validators=()))
                CHAIN.put(branch, Chain(CHAIN_ID, MAX_BLOCK_BYTES))
            for address in addresses[start : start + FILLED_AT_ONCE]:
                ACCOUNTS.put(branch, records.Account(balance=BALANCE, nonce=0), address)
            store.commit(store.prepare(store.committed.height + 1, branch.writes))
            on_progress(min(1.0, (start + FILLED_AT_ONCE) / len(addresses)))


def _blocks(payers: Sequence[PrivateKey], addresses: Sequence[bytes], num_blocks: int) -> Iterator[list[bytes]]:
    """Signed transfers; payers take turns, in an order by chance that is the same every time."""
    chance = random.Random(len(addresses))
    order = list(range(len(payers)))
    chance.shuffle(order)
    for block in range(num_blocks):
        turns = [divmod(block * TXS_PER_BLOCK + number, len(payers)) for number in range(TXS_PER_BLOCK)]
        yield [_transfer(payers[order[place]], nonce, chance.choice(addresses)) for nonce, place in turns]


def _transfer(payer: PrivateKey, nonce: int, to: bytes) -> bytes:
    messages = (Transfer(to=to, amount=1),)
    return sign_transaction(TxBody(CHAIN_ID, nonce, total_work(messages), 0, messages), payer)


def _time_block(application: Application, store: _TimedStore, txs: Sequence[bytes]) -> _BlockTimes:
    for tx in txs:
        assert application.check_tx(pb.RequestCheckTx(tx=tx)).code == 0
    began = time.perf_counter()
    answer = application.finalize_block(pb.RequestFinalizeBlock(txs=txs, height=store.committed.height + 1))
    finalized = time.perf_counter()
    application.commit(pb.RequestCommit())
    committed = time.perf_counter()
    assert len(answer.tx_results) == len(txs)
    assert all(result.code == 0 for result in answer.tx_results)
    return _BlockTimes(store.state_root_s, committed - finalized, finalized - began)


def _summary(accounts: int, *, cold: Sequence[_BlockTimes], warm: Sequence[_BlockTimes]) -> CommitTimes:
    return CommitTimes(
        accounts=accounts,
        txs_per_block=TXS_PER_BLOCK,
        blocks=len(warm),
        commit_ms=1e3 * median(each.commit for each in warm),
        commit_ms_max=1e3 * max(each.commit for each in warm),
        cold_commit_ms=1e3 * median(each.commit for each in cold),
        state_root_ms=1e3 * median(each.state_root for each in warm),
        write_ms=1e3 * median(each.write for each in warm),
        finalize_ms=1e3 * median(each.finalize for each in warm),
    )
