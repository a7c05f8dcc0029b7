"""The memory of verified transactions is bounded in number and bytes, and forgets the oldest first."""

import pytest

from abci_app.errors import MalformedTransaction
from abci_app.known import KnownTransactions
from abci_app.parsed import ParsedTransaction, parse_transaction
from abci_app.transactions import tx_hash
from abci_app.work import total_work
from tests.abci_app.kit import ALICE, transfer

FIRST, SECOND, THIRD = (parse_transaction(transfer(nonce)) for nonce in range(3))


def held(known: KnownTransactions) -> list[bool]:
    return [known.find(one.raw) is one for one in (FIRST, SECOND, THIRD)]


def filled(*added: ParsedTransaction, **limits: int) -> KnownTransactions:
    known = KnownTransactions(**limits)
    for one in added:
        known.add(one)
    return known


def test_the_oldest_are_forgotten_first() -> None:
    assert held(filled(FIRST, SECOND, THIRD, limit=2)) == [False, True, True]


def test_it_holds_no_more_bytes_than_allowed() -> None:
    known = filled(FIRST, SECOND, THIRD, limit_bytes=len(SECOND.raw) + len(THIRD.raw))
    assert held(known) == [False, True, True]
    assert len(known) == 2


def test_one_that_is_larger_than_the_limit_is_not_kept() -> None:
    assert len(filled(FIRST, limit_bytes=len(FIRST.raw) - 1)) == 0


def test_adding_again_changes_nothing() -> None:
    known = filled(FIRST, SECOND, FIRST, parse_transaction(FIRST.raw), limit_bytes=2 * len(FIRST.raw))
    assert held(known) == [True, True, False]


def test_other_bytes_are_not_known() -> None:
    assert filled(FIRST).find(FIRST.raw[:-1] + bytes([FIRST.raw[-1] ^ 1])) is None


def test_the_parsed_form_says_what_follows_from_the_bytes() -> None:
    assert FIRST.sender == ALICE.address
    assert FIRST.work == total_work(FIRST.body.messages)
    assert FIRST.hash == tx_hash(FIRST.raw)
    with pytest.raises(MalformedTransaction):
        parse_transaction(FIRST.raw + b"\x00")
