"""Snapshots: how long one takes beside the chain, what it does to blocks, and how long a restore takes.

    python benchmarks/bench_snapshots.py [--sizes 10000 100000] [--blocks 200]

Each state is of that many accounts. A block has 20 signed payments, from FinalizeBlock to the end of Commit, one every
100 ms; its times are given without and with a snapshot being taken. Restoring is verifying and writing all chunks.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from abci_app import records
from abci_app.application import Application
from abci_app.block import BlockContext
from abci_app.execution import begin_block, end_block, execute_transaction, init_genesis
from abci_app.messages import Transfer
from abci_app.params import Genesis, GenesisAccount
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.taking import Snapshots
from abci_app.state import Branch
from abci_app.store import Store
from abci_app.tables import ACCOUNTS
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from primitives.keys import PrivateKey, format_address

CHAIN_ID = "bench"
BLOCK_EVERY_S = 0.1
TXS_PER_BLOCK = 20
PAYER = PrivateKey.from_seed("payer")


def fill(store: Store, count: int) -> None:
    """A state of `count` accounts at height 1."""
    branch = Branch(store.committed)
    init_genesis(branch, Genesis(accounts=(GenesisAccount(format_address(PAYER.address), 10**15),), validators=()))
    for number in range(count):
        ACCOUNTS.put(branch, records.Account(balance=number, nonce=0), number.to_bytes(20, "big"))
    store.commit(store.prepare(1, branch.writes))


class Blocks:
    """One block after another, with the time that each takes."""

    def __init__(self, store: Store) -> None:
        self._store, self._nonce = store, 0

    def run(self, stop: Callable[[int], bool]) -> list[float]:
        """Seconds of each block, until `stop` says so of their number."""
        times: list[float] = []
        while not stop(len(times)):
            began = time.perf_counter()
            txs = [self._payment() for _ in range(TXS_PER_BLOCK)]
            signed = time.perf_counter()
            self._block(txs)
            times.append(time.perf_counter() - signed)
            time.sleep(max(0.0, BLOCK_EVERY_S - (time.perf_counter() - began)))
        return times

    def _block(self, txs: list[bytes]) -> None:
        block = BlockContext(chain_id=CHAIN_ID, height=self._store.committed.height + 1, time_s=0)
        branch = Branch(self._store.committed)
        begin_block(branch, block, [])
        for tx in txs:
            assert execute_transaction(branch, tx, block).code == 0
        end_block(branch, block)
        self._store.commit(self._store.prepare(block.height, branch.writes))

    def _payment(self) -> bytes:
        messages = (Transfer(to=self._nonce.to_bytes(20, "big"), amount=1),)
        body = TxBody(CHAIN_ID, self._nonce, total_work(messages), 0, messages)
        self._nonce += 1
        return sign_transaction(body, PAYER)


def restore(folder: Path, snapshots: Snapshots, app_hash: bytes) -> float:
    """Seconds to verify and write every chunk."""
    snapshot = snapshots.offers()[0]
    with Store(folder / "app") as store:
        application = Application(store)
        began = time.perf_counter()
        application.offer_snapshot(pb.RequestOfferSnapshot(snapshot=snapshot, app_hash=app_hash))
        for index in range(snapshot.chunks):
            data = snapshots.load_chunk(snapshot.height, snapshot.format, index)
            application.apply_snapshot_chunk(pb.RequestApplySnapshotChunk(index=index, chunk=data))
        took = time.perf_counter() - began
        assert store.committed.app_hash == app_hash
        application.close()
    return took


def shown(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{1e3 * statistics.median(ordered):6.1f} {1e3 * ordered[int(len(ordered) * 0.99)]:6.1f}"


def bench(count: int, num_blocks: int) -> None:
    with tempfile.TemporaryDirectory() as name, Store(Path(name, "one/app")) as store:
        fill(store, count)
        blocks = Blocks(store)
        quiet = blocks.run(lambda number: number == num_blocks)
        snapshots = Snapshots(Path(name, "snapshots"), interval_blocks=1, keep=1, reserve_bytes=0)
        app_hash, began = store.committed.app_hash, time.perf_counter()
        snapshots.after_commit(store.committed)
        beside = blocks.run(lambda _: snapshots.wait(0))
        took = time.perf_counter() - began
        chunks = snapshots.offers()[0].chunks
        size = sum(path.stat().st_size for path in Path(name, "snapshots").rglob("chunks"))
        again = restore(Path(name, "two"), snapshots, app_hash)
        print(
            f"{count:9,} {size / 1e6:7.1f} {chunks:7} {took:8.1f} {again:8.1f}   {shown(quiet)}     {shown(beside)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--blocks", type=int, default=200)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    print("                                              blocks alone, ms   with one taken, ms")
    print(" accounts      MB  chunks  take, s restore, s   median    p99      median    p99")
    for count in chosen.sizes:
        bench(count, chosen.blocks)


if __name__ == "__main__":
    main()
