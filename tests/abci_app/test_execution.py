"""Envelope, nonce, fee, atomicity: what holds for every transaction whatever its messages."""

import msgspec
import pytest

from abci_app import messages as m
from abci_app import tables
from abci_app.block import Receipt
from abci_app.execution import PENDING_WINDOW, execute_transaction
from abci_app.ledger import conservation_gap, counters_of
from abci_app.params import Params
from abci_app.parsed import parse_transaction
from abci_app.records import Account
from abci_app.state import Branch
from abci_app.transactions import MAX_TX_BYTES, Transaction, TxBody, body_digest, sign_transaction
from abci_app.work import minimum_fee
from primitives.encoding import decode, encode
from tests.abci_app.kit import check_transaction
from tests.abci_app.rules.chain import CHAIN_ID, START_BALANCE, TOKEN, Chain, address, key, make_genesis

PAY_BOB = m.Transfer(to=address("bob"), amount=7)
FEE = 200


def body(**changes: object) -> TxBody:
    fields = {"chain_id": CHAIN_ID, "nonce": 0, "fee": FEE, "valid_until_height": 0, "messages": (PAY_BOB,)}
    return TxBody(**(fields | changes))  # type: ignore[arg-type]


def signed(who: str = "alice", **changes: object) -> bytes:
    return sign_transaction(body(**changes), key(who))


def raw(value: object) -> bytes:
    """A correctly signed envelope around a body of any shape."""
    encoded = msgspec.msgpack.encode(value)
    signature = key("alice").sign(body_digest(encoded))
    return encode(Transaction(body=encoded, public_key=key("alice").public_key, signature=signature))


def executed(chain: Chain, tx: bytes) -> tuple[Receipt, dict[bytes, bytes | None]]:
    branch = Branch(chain.state)
    return execute_transaction(branch, tx, chain.context()), branch.writes


def checked(chain: Chain, tx: bytes, *, recheck: bool = False) -> int:
    height = chain.height + 1
    return check_transaction(chain.state, tx, chain_id=CHAIN_ID, height=height, recheck=recheck).code


def bare(*fields: object) -> list[object]:
    """A body as plain values: chain id, nonce, fee, valid until, messages."""
    return list(fields)


TRANSFER = ["transfer", address("bob"), 7]

TRACELESS: list[tuple[str, bytes, int]] = [
    ("nothing", b"", 2),
    ("garbage", b"\xc1\xff\x00garbage", 2),
    ("one byte too many", signed() + b"\x00", 2),
    ("one byte too few", signed()[:-1], 2),
    ("too large", b"\x00" * (MAX_TX_BYTES + 1), 3),
    ("no messages", signed(messages=()), 2),
    ("101 messages", signed(messages=(PAY_BOB,) * 101, fee=10**6), 2),
    ("unknown message", raw(bare(CHAIN_ID, 0, FEE, 0, [["mint", address("alice"), 7]])), 2),
    ("amount is a bool", raw(bare(CHAIN_ID, 0, FEE, 0, [["transfer", address("bob"), True]])), 2),
    ("amount is a float", raw(bare(CHAIN_ID, 0, FEE, 0, [["transfer", address("bob"), 7.0]])), 2),
    ("amount is a text", raw(bare(CHAIN_ID, 0, FEE, 0, [["transfer", address("bob"), "7"]])), 2),
    ("amount is missing", raw(bare(CHAIN_ID, 0, FEE, 0, [["transfer", address("bob")]])), 2),
    ("field too many", raw(bare(CHAIN_ID, 0, FEE, 0, [[*TRANSFER, 1]])), 2),
    ("nonce is a bool", raw(bare(CHAIN_ID, False, FEE, 0, [TRANSFER])), 2),
    ("negative nonce", raw(bare(CHAIN_ID, -1, FEE, 0, [TRANSFER])), 2),
    ("huge fee", raw(bare(CHAIN_ID, 0, 2**63, 0, [TRANSFER])), 2),
    ("amount is zero", signed(messages=(m.Transfer(to=address("bob"), amount=0),)), 6),
    ("amount is negative", signed(messages=(m.Transfer(to=address("bob"), amount=-1),)), 6),
    ("amount is 2^63", signed(messages=(m.Transfer(to=address("bob"), amount=2**63),)), 6),
    ("address of 19 bytes", signed(messages=(m.Transfer(to=b"x" * 19, amount=1),)), 6),
    ("address of 21 bytes", signed(messages=(m.Transfer(to=b"x" * 21, amount=1),)), 6),
    ("other chain", signed(chain_id="other-chain"), 4),
    ("fee one too low", signed(fee=FEE - 1), 8),
    ("fee out of reach", signed(fee=START_BALANCE + 1), 22),
    ("nonce ahead", signed(nonce=1), 20),
    ("sender without money", signed("nobody"), 22),
]


@pytest.mark.parametrize(("tx", "code"), [case[1:] for case in TRACELESS], ids=[case[0] for case in TRACELESS])
def test_transaction_without_a_due_fee_leaves_no_trace(tx: bytes, code: int) -> None:
    receipt, writes = executed(Chain(), tx)
    assert receipt.code == code, receipt.log
    assert writes == {}
    assert receipt.work_used == 0


@pytest.mark.parametrize(("tx", "code"), [c[1:] for c in TRACELESS[:-3]], ids=[c[0] for c in TRACELESS[:-3]])
def test_check_refuses_with_the_same_code(tx: bytes, code: int) -> None:
    assert checked(Chain(), tx) == code


def test_forged_signature_leaves_no_trace() -> None:
    envelope = decode(signed(), Transaction)
    forged = encode(Transaction(body=envelope.body, public_key=envelope.public_key, signature=bytes(64)))
    chain = Chain()
    receipt, writes = executed(chain, forged)
    assert (receipt.code, writes) == (5, {})
    assert checked(chain, forged) == 5
    assert checked(chain, forged, recheck=True) == 0, "recheck trusts the first check"


def test_body_signed_again_by_somebody_else_is_that_persons_transaction() -> None:
    chain = Chain()
    chain.block(signed("alice"), signed("w0"))
    assert chain.balance("bob") == START_BALANCE + 14


def test_body_under_another_public_key_is_refused() -> None:
    envelope = decode(signed("alice"), Transaction)
    swapped = encode(Transaction(envelope.body, key("w0").public_key, envelope.signature))
    receipt, writes = executed(Chain(), swapped)
    assert (receipt.code, writes) == (5, {})


def test_refused_message_costs_fee_and_nonce_and_nothing_else() -> None:
    chain = Chain()
    assert chain.refused("alice", m.Transfer(to=address("bob"), amount=START_BALANCE)) == 22


def test_messages_apply_together_or_not_at_all() -> None:
    chain = Chain()
    too_much = m.Transfer(to=address("bob"), amount=START_BALANCE)
    assert chain.refused("alice", PAY_BOB, too_much) == 22
    assert chain.balance("bob") == START_BALANCE


def test_receipt_lists_one_id_for_each_message() -> None:
    chain = Chain()
    assert decode(chain.ok("alice", PAY_BOB, PAY_BOB).data, list[int]) == [0, 0]


def test_fee_is_burned() -> None:
    chain = Chain()
    chain.ok("alice", PAY_BOB)
    assert chain.balance("alice") == START_BALANCE - FEE - 7
    assert counters_of(chain.state).burned == FEE


def test_transfer_to_oneself_changes_nothing_but_the_fee() -> None:
    chain = Chain()
    chain.ok("alice", m.Transfer(to=address("alice"), amount=START_BALANCE - FEE))
    assert chain.balance("alice") == START_BALANCE - FEE


def test_whole_balance_can_be_sent() -> None:
    chain = Chain()
    chain.ok("alice", m.Transfer(to=address("bob"), amount=START_BALANCE - FEE))
    assert tables.ACCOUNTS.get(chain.state, address("alice")) == Account(balance=0, nonce=1)


def test_committed_transaction_is_refused_when_sent_again() -> None:
    chain = Chain()
    tx = signed()
    first, again = chain.block(tx, tx)
    assert (first.code, again.code) == (0, 20)
    receipt, writes = executed(chain, tx)
    assert (receipt.code, writes) == (20, {})
    assert checked(chain, tx) == 20


def test_consecutive_nonces_in_one_block_all_apply() -> None:
    chain = Chain()
    receipts = chain.block(*[signed(nonce=nonce) for nonce in range(5)])
    assert [receipt.code for receipt in receipts] == [0] * 5


def test_gap_and_wrong_order_get_a_clear_code_and_do_not_block_the_sender() -> None:
    chain = Chain()
    receipts = chain.block(signed(nonce=1), signed(nonce=0), signed(nonce=2))
    assert [receipt.code for receipt in receipts] == [20, 0, 20]
    assert "next nonce of this account is 0" in receipts[0].log
    assert chain.ok("alice", PAY_BOB).code == 0


@pytest.mark.parametrize(
    ("nonce", "code"), [(2, 20), (3, 0), (4, 0), (3 + PENDING_WINDOW - 1, 0), (3 + PENDING_WINDOW, 20)]
)
def test_check_lets_a_window_of_nonces_wait(nonce: int, code: int) -> None:
    chain = Chain()
    chain.block(*[signed(nonce=n) for n in range(3)])
    assert checked(chain, signed(nonce=nonce)) == code
    assert checked(chain, signed(nonce=nonce), recheck=True) == code


@pytest.mark.parametrize(("valid_until", "code"), [(0, 0), (9, 21), (10, 0), (11, 0)])
def test_valid_until_height_is_the_last_height(valid_until: int, code: int) -> None:
    chain = Chain()
    chain.skip_to(9)
    tx = signed(valid_until_height=valid_until)
    receipt, _ = executed(chain, tx)
    assert receipt.code == code
    assert checked(chain, tx) == code


def test_transaction_with_more_work_than_a_block_holds_is_refused() -> None:
    chain = Chain(make_genesis(Params(max_block_work=299)))
    tx = signed(messages=(PAY_BOB, PAY_BOB), fee=300)
    receipt, writes = executed(chain, tx)
    assert (receipt.code, writes) == (7, {})
    assert checked(chain, tx) == 7
    assert checked(chain, signed()) == 0


def test_garbage_between_good_transactions_gets_its_own_receipt() -> None:
    chain = Chain()
    receipts = chain.block(b"\x00garbage", signed(nonce=0), b"", b"\xff" * 1000, signed(nonce=1))
    assert [receipt.code for receipt in receipts] == [2, 0, 2, 2, 0]


def test_log_stays_short_whatever_the_transaction_says() -> None:
    receipt, _ = executed(Chain(), signed(chain_id="x" * 100_000))
    assert receipt.code == 4
    assert len(receipt.log) <= 400


def test_fee_follows_the_gas_price_of_genesis() -> None:
    params = Params(gas_price_micro=3)
    chain = Chain(make_genesis(params))
    assert minimum_fee((PAY_BOB,), params) == 600
    assert executed(chain, signed(fee=599))[0].code == 8
    assert executed(chain, signed(fee=600))[0].code == 0


def test_known_good_signature_is_not_verified_again() -> None:
    envelope = decode(signed(), Transaction)
    forged = encode(Transaction(body=envelope.body, public_key=envelope.public_key, signature=bytes(64)))
    chain = Chain()
    receipt = execute_transaction(Branch(chain.state), forged, chain.context(), known=parse_transaction(forged))
    assert receipt.code == 0


def test_genesis_conserves_the_supply() -> None:
    chain = Chain()
    assert counters_of(chain.state).supply == 11 * START_BALANCE + 400 * TOKEN
    assert conservation_gap(chain.state) == 0


def test_empty_block_changes_nothing() -> None:
    chain = Chain()
    before = dict(chain.state.items)
    chain.block()
    assert chain.state.items == before
    assert chain.end.validator_updates == ()
