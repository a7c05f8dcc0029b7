"""What waits in the mempool behind a missing nonce, or twice with one nonce, goes after a while; all else stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from abci_app.application import Application
from abci_app.errors import WrongNonce
from abci_app.server import abci_pb2 as pb
from abci_app.store import Store
from abci_app.waiting import MAX_GAP_BLOCKS
from tests.abci_app.kit import BOB, init_chain, run_block, transfer


class Mempool:
    """Asks as CometBFT does: NEW once, then RECHECK after each block in the order of arrival."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.txs: list[bytes] = []
        self.height = 0

    def check(self, tx: bytes, kind: "pb.CheckTxType.ValueType" = pb.NEW) -> int:
        return self.application.check_tx(pb.RequestCheckTx(tx=tx, type=kind)).code

    def offer(self, *txs: bytes) -> None:
        for tx in txs:
            assert self.check(tx) == 0
            self.txs.append(tx)

    def next_block(self, *txs: bytes) -> None:
        self.height += 1
        run_block(self.application, self.height, txs)
        kept = [tx for tx in self.txs if tx not in txs]
        codes = [self.check(tx, pb.RECHECK) for tx in kept]
        assert set(codes) <= {0, WrongNonce.code}
        self.txs = [tx for tx, code in zip(kept, codes, strict=True) if code == 0]


@pytest.fixture
def mempool(tmp_path: Path) -> Iterator[Mempool]:
    with Store(tmp_path) as store:
        application = Application(store)
        application.init_chain(init_chain())
        mempool = Mempool(application)
        mempool.next_block()
        yield mempool


def test_transactions_behind_a_nonce_that_never_comes_leave_after_some_blocks(mempool: Mempool) -> None:
    honest = transfer(0, sender=BOB)
    mempool.offer(transfer(1), transfer(2), honest)
    for _ in range(MAX_GAP_BLOCKS):
        mempool.next_block()
        assert len(mempool.txs) == 3
    mempool.next_block()
    assert mempool.txs == [honest]


def test_a_gap_that_is_closed_in_time_costs_nothing(mempool: Mempool) -> None:
    later = [transfer(3), transfer(2), transfer(1)]
    mempool.offer(*later)
    for _ in range(MAX_GAP_BLOCKS):
        mempool.next_block()
    first = transfer(0)
    mempool.offer(first)
    for _ in range(MAX_GAP_BLOCKS + 2):
        mempool.next_block()
        assert mempool.txs == [*later, first]


def test_a_long_row_of_nonces_stays_in_any_order(mempool: Mempool) -> None:
    row = [transfer(nonce) for nonce in (5, 3, 0, 1, 4, 2)]
    mempool.offer(*row)
    for _ in range(MAX_GAP_BLOCKS + 2):
        mempool.next_block()
    assert mempool.txs == row
    mempool.next_block(row[2], row[3])
    assert mempool.txs == [row[0], row[1], row[4], row[5]]


def test_of_transactions_with_one_nonce_the_first_stays(mempool: Mempool) -> None:
    first, second = transfer(0, amount=1), transfer(0, amount=2)
    mempool.offer(first, second)
    mempool.next_block()
    assert mempool.txs == [first]
    mempool.next_block()
    assert mempool.txs == [first]


def test_the_same_transaction_offered_again_does_not_drive_itself_out(mempool: Mempool) -> None:
    tx = transfer(0)
    mempool.offer(tx)
    mempool.height += 1
    run_block(mempool.application, mempool.height)
    assert mempool.check(tx) == 0
    assert mempool.check(tx, pb.RECHECK) == 0


def test_what_was_checked_but_never_waited_holds_no_place_for_long(mempool: Mempool) -> None:
    """CometBFT may drop a transaction that CheckTx let in, when the mempool is full by then."""
    assert mempool.check(transfer(0)) == 0
    mempool.offer(transfer(1))
    for _ in range(MAX_GAP_BLOCKS + 2):
        mempool.next_block()
    assert mempool.txs == []
    mempool.offer(transfer(0), transfer(1))
    mempool.next_block()
    assert len(mempool.txs) == 2
