"""The audit of made-up blocks: lost, repeated and falsely refused payments, and accounts that hold something else."""

from collections.abc import Sequence

import pytest

from abci_app.messages import RetireWorker, Transfer
from abci_app.records import Account
from abci_app.transactions import TxBody, sign_transaction, tx_hash
from localnet.chaos.history import Block, BlockTx, History, differing, longest_gap_s
from localnet.chaos.ledger import LedgerFindings, Told, audit_ledger, expected_accounts
from primitives.keys import PrivateKey

PAYER = PrivateKey.from_seed("payer")
ALICE, BOB = bytes([1]) * 20, bytes([2]) * 20
FEE = 200
GENESIS = {PAYER.address: Account(balance=10_000)}
GENESIS_AFTER = {
    PAYER.address: Account(balance=10_000 - 2 * FEE - 12, nonce=2),
    ALICE: Account(balance=5),
    BOB: Account(balance=7),
}


def payment(to: bytes, amount: int, nonce: int) -> bytes:
    body = TxBody(chain_id="c", nonce=nonce, fee=FEE, valid_until_height=0, messages=(Transfer(to=to, amount=amount),))
    return sign_transaction(body, PAYER)


FIRST, SECOND = payment(ALICE, 5, 0), payment(BOB, 7, 1)


def done(data: bytes) -> BlockTx:
    return BlockTx(data=data, code=0, charged=True)


def block(height: int, *txs: BlockTx, app_hash: str = "AA", hash_: str = "BB") -> Block:
    return Block(height=height, hash=hash_, app_hash=app_hash, time_s=10.0 * height**2, txs=txs)


def chain(*blocks: Block) -> dict[int, Block]:
    return {found.height: found for found in blocks}


GOOD = chain(block(1, done(FIRST)), block(2), block(3, done(SECOND)))


def told_of_both() -> Told:
    return Told(
        payments={ALICE: 5, BOB: 7},
        sent={tx_hash(FIRST), tx_hash(SECOND)},
        acknowledged={tx_hash(FIRST): 1, tx_hash(SECOND): 3},
    )


def audit(
    histories: Sequence[History], told: Told | None = None, accounts: dict[bytes, Account] = GENESIS_AFTER
) -> LedgerFindings:
    return audit_ledger(told or told_of_both(), histories, GENESIS, [GENESIS_AFTER, accounts])


def test_a_chain_that_kept_every_promise_has_nothing_wrong() -> None:
    found = audit([GOOD, GOOD])
    assert not (found.lost | found.executed_twice | found.wrong_accounts | found.falsely_refused)
    assert found.executed == 2


def test_a_node_that_begins_later_is_asked_for_what_it_keeps() -> None:
    assert audit([GOOD, chain(*list(GOOD.values())[1:])]).lost == frozenset()


@pytest.mark.parametrize(
    "other",
    [
        chain(block(1), block(2), GOOD[3]),
        chain(block(1), block(2, done(FIRST)), GOOD[3]),
        chain(block(1, BlockTx(data=FIRST, code=12, charged=False)), block(2), GOOD[3]),
    ],
    ids=["missing", "at another height", "refused"],
)
def test_an_acknowledged_payment_must_be_where_it_was_said_to_be_on_every_node(other: dict[int, Block]) -> None:
    assert audit([GOOD, other]).lost == {tx_hash(FIRST)}


def test_an_acknowledged_payment_in_a_block_that_nobody_has_is_lost() -> None:
    told = told_of_both()
    told.acknowledged[tx_hash(FIRST)] = 99
    assert audit([GOOD, GOOD], told).lost == {tx_hash(FIRST)}


def test_the_same_transaction_twice_with_code_0_is_a_double_execution() -> None:
    twice = GOOD | chain(block(2, done(FIRST)))
    found = audit([twice, twice])
    assert found.executed_twice == {ALICE}
    assert found.wrong_accounts == {ALICE, PAYER.address}


def test_a_payment_made_again_under_another_nonce_is_a_double_execution() -> None:
    again = GOOD | chain(block(4, done(payment(ALICE, 5, 2))))
    assert audit([again, again]).executed_twice == {ALICE}


def test_a_second_appearance_that_was_refused_is_none() -> None:
    refused = GOOD | chain(block(2, BlockTx(data=FIRST, code=12, charged=False)))
    found = audit([refused, refused])
    assert not (found.executed_twice | found.wrong_accounts)


def test_an_account_that_holds_something_else_on_one_node_is_found() -> None:
    assert audit([GOOD, GOOD], accounts=GENESIS_AFTER | {BOB: Account(balance=14)}).wrong_accounts == {BOB}
    del (missing := dict(GENESIS_AFTER))[ALICE]
    assert audit([GOOD, GOOD], accounts=missing).wrong_accounts == {ALICE}


def test_a_payment_said_to_be_void_must_not_have_been_made() -> None:
    told = told_of_both()
    told.refused = {ALICE, bytes([3]) * 20}
    assert audit([GOOD, GOOD], told).falsely_refused == {ALICE}


def test_a_refused_transaction_that_was_charged_costs_its_fee_and_nonce() -> None:
    charged = chain(block(1, BlockTx(data=FIRST, code=9, charged=True)))
    assert expected_accounts(charged, GENESIS)[PAYER.address] == Account(balance=10_000 - FEE, nonce=1)
    assert ALICE not in expected_accounts(charged, GENESIS)


def test_accounts_whose_money_other_rules_move_are_left_out() -> None:
    body = TxBody(chain_id="c", nonce=0, fee=FEE, valid_until_height=0, messages=(RetireWorker(),))
    worker = chain(block(1, done(sign_transaction(body, PAYER))))
    assert expected_accounts(worker, GENESIS) == {}


def test_nodes_differ_where_block_app_hash_or_outcome_differ() -> None:
    for other in (block(2, hash_="CC"), block(2, app_hash="CC"), block(2, done(SECOND))):
        assert differing([GOOD, GOOD | chain(other)]) == [2]
    assert differing([GOOD, GOOD, chain(GOOD[3])]) == []


def test_a_height_that_nobody_has_or_without_app_hash_counts_as_a_difference() -> None:
    assert differing([chain(GOOD[1], GOOD[3])]) == [2]
    assert differing([chain(block(1, app_hash=""))]) == [1]


def test_the_longest_gap_is_between_two_blocks_in_a_row() -> None:
    assert longest_gap_s(GOOD) == 50.0
    assert longest_gap_s({}) == 0.0
