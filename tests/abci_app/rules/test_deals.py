"""Storage deals: drawing of providers, activation, extension, deletion, expiry, and who gets the money."""

from collections import Counter

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.ledger import conservation_gap
from abci_app.params import Params
from abci_app.records import Deal
from abci_app.rules import deals
from abci_app.rules.deals import price_per_block
from abci_app.work import WORK, minimum_fee
from primitives.deals import receipt_digest
from primitives.encoding import decode
from primitives.hashing import sha256
from tests.abci_app.rules.chain import (
    CHAIN_ID,
    START_BALANCE,
    TOKEN,
    VALIDATORS,
    Chain,
    address,
    double_sign,
    key,
    make_genesis,
    possession,
    public,
    service,
)

MIB = 1024 * 1024
NAMES = {address(v): v for v in VALIDATORS}
CREATE = m.CreateDeal(
    key=sha256(b"deal"),
    root=sha256(b"file"),
    size=3 * MIB,
    tier="hot",
    replicas=3,
    duration=10,
    series="job/1/checkpoints",
)
PRICE = 3 * 4 * 3
"""MiB x hot price x replicas."""


def deal_of(chain: Chain, deal_id: int = 1) -> Deal:
    record = tables.DEALS.get(chain.state, deal_id)
    assert record is not None
    return record


def receipts(deal: Deal, *, deal_id: int = 0, chain_id: str = CHAIN_ID) -> m.ActivateDeal:
    digest = receipt_digest(chain_id, deal_id or deal.id, deal.root, deal.size)
    signed = tuple((op, key(f"service:{NAMES[op]}").sign(digest)) for op in deal.providers)
    return m.ActivateDeal(deal_id=deal.id, receipts=signed)


def active(**changes: object) -> Chain:
    chain = Chain()
    chain.ok("alice", replace(CREATE, **changes))
    chain.ok("bob", receipts(deal_of(chain)))
    assert deal_of(chain).status == "active"
    return chain


def living(chain: Chain) -> list[tuple[int, int]]:
    """(end height, id) of the deals that the chain still has to end."""
    parts = [key[len(tables.DEALS_BY_END.prefix) :] for key, _ in tables.DEALS_BY_END.iterate(chain.state)]
    return [(int.from_bytes(part[:8], "big"), int.from_bytes(part[8:], "big")) for part in parts]


def provider_income(chain: Chain) -> int:
    return sum(chain.balance(v) for v in VALIDATORS) - len(VALIDATORS) * START_BALANCE


# --- create -------------------------------------------------------------------------------------------------------
def test_deal_sets_its_price_aside_and_draws_distinct_providers() -> None:
    chain = Chain()
    receipt = chain.ok("alice", CREATE)
    deal = deal_of(chain)
    assert decode(receipt.data, list[int]) == [1]
    assert (deal.status, deal.price_per_block, deal.escrow) == ("pending", PRICE, PRICE * 10)
    assert chain.balance("alice") == START_BALANCE - PRICE * 10 - receipt.work_used
    assert len(set(deal.providers)) == 3
    assert list(deal.providers) == sorted(deal.providers)
    assert set(deal.providers) <= set(NAMES)
    assert [event.attributes for event in chain.events] == [{"deal_id": "1", "status": "pending"}]


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (MIB, 1), (MIB + 1, 2), (10 * MIB, 10)])
def test_price_counts_begun_mebibytes_and_at_least_one(size: int, units: int) -> None:
    assert price_per_block(size, "hot", 2, Params()) == units * 4 * 2
    assert price_per_block(size, "temporary", 2, Params()) == units * 1 * 2


def test_draw_follows_the_stake_and_the_block() -> None:
    chain = Chain(make_genesis(stakes=(1000, 10, 10, 10)))
    drawn: Counter[str] = Counter()
    for i in range(30):
        chain.ok("alice", replace(CREATE, key=sha256(b"%d" % i), replicas=1))
        drawn[NAMES[deal_of(chain, i + 1).providers[0]]] += 1
    assert drawn["v0"] >= 24
    assert sum(drawn.values()) == 30


def test_equal_stakes_are_drawn_in_turn_by_chance() -> None:
    chain = Chain()
    drawn = set()
    for i in range(30):
        chain.ok("alice", replace(CREATE, key=sha256(b"%d" % i), replicas=1))
        drawn.add(deal_of(chain, i + 1).providers)
    assert len(drawn) == 4


def test_deals_of_one_block_are_drawn_independently() -> None:
    chain = Chain()
    chain.block(
        *[chain.tx("alice", replace(CREATE, key=sha256(b"%d" % i), replicas=1), nonce_ahead=i) for i in range(20)]
    )
    assert len({deal_of(chain, i + 1).providers for i in range(20)}) > 1


def test_same_deal_sent_again_is_the_same_deal_and_costs_only_the_fee() -> None:
    chain = active()
    chain.ok("alice", m.ExtendDeal(deal_id=1, blocks=5))
    before = chain.balance("alice")
    receipt = chain.ok("alice", CREATE)
    assert decode(receipt.data, list[int]) == [1]
    assert chain.balance("alice") == before - receipt.work_used
    assert tables.DEALS.get(chain.state, 2) is None


@pytest.mark.parametrize("change", [{"size": 1}, {"duration": 11}, {"series": ""}, {"tier": "temporary"}], ids=str)
def test_key_used_for_other_terms_is_refused(change: dict[str, object]) -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    assert chain.refused("alice", replace(CREATE, **change)) == 112


def test_two_deals_of_one_file_are_independent() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    chain.ok("bob", replace(CREATE, replicas=4))
    chain.ok("alice", receipts(deal_of(chain, 1)))
    assert deal_of(chain, 2).status == "pending", "a file that one deal holds is not thereby held by another"
    chain.ok("alice", receipts(deal_of(chain, 2)))
    chain.ok("alice", m.DeleteDeal(deal_id=1))
    assert deal_of(chain, 2).status == "active"


@pytest.mark.parametrize(("replicas", "code"), [(4, 0), (5, 113), (16, 113), (17, 117)])
def test_there_must_be_enough_providers(replicas: int, code: int) -> None:
    assert Chain().send("alice", replace(CREATE, replicas=replicas)).code == code


def test_providers_are_drawn_from_the_service_set_that_the_block_began_with() -> None:
    chain = Chain()
    newcomer = m.RegisterValidator(consensus_key=public("bob"), possession_proof=possession("bob"), bond=10 * TOKEN)
    all_five = replace(CREATE, replicas=5)
    joined, refused = chain.block(chain.tx("bob", newcomer, service("bob")), chain.tx("alice", all_five))
    assert (joined.code, refused.code) == (0, 113)
    chain.ok("alice", all_five)
    assert address("bob") in deal_of(chain).providers


def test_jailed_validators_are_not_drawn() -> None:
    chain = Chain()
    chain.block(evidence=[double_sign("v0")])
    assert chain.refused("alice", replace(CREATE, replicas=4)) == 113
    chain.ok("alice", CREATE)
    assert address("v0") not in deal_of(chain).providers


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"size": 1 << 40, "duration": 1}, 0),
        ({"size": (1 << 40) + 1, "duration": 1}, 117),
        ({"duration": 10_000_000}, 0),
        ({"duration": 10_000_001}, 117),
        ({"duration": 2**63 - 1}, 117),
        ({"duration": 0}, 6),
        ({"replicas": 0}, 6),
        ({"size": -1}, 6),
        ({"series": "Upper"}, 6),
        ({"series": "a" * 64}, 0),
        ({"series": "a" * 65}, 6),
        ({"size": 0}, 0),
    ],
    ids=str,
)
def test_terms_have_limits(change: dict[str, object], code: int) -> None:
    assert Chain().send("alice", replace(CREATE, **change)).code == code


def test_deal_that_the_owner_cannot_pay_is_refused() -> None:
    assert Chain().refused("alice", replace(CREATE, size=1 << 40, duration=10_000_000)) == 22


# --- activate -----------------------------------------------------------------------------------------------------
def test_time_runs_from_activation() -> None:
    chain = active()
    deal = deal_of(chain)
    assert (deal.start_height, deal.end_height) == (chain.height, chain.height + 10)


@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 114)])
def test_activation_counts_until_its_deadline(offset: int, code: int) -> None:
    chain = Chain(make_genesis(Params(deal_pending_blocks=5)))
    chain.ok("alice", CREATE)
    deal = deal_of(chain)
    assert deal.end_height == chain.height + 5
    chain.skip_to(deal.end_height + offset - 1)
    assert chain.send("alice", receipts(deal)).code == code


def test_deal_that_is_not_activated_in_time_lapses_and_is_refunded() -> None:
    chain = Chain(make_genesis(Params(deal_pending_blocks=5)))
    chain.ok("alice", CREATE)
    end, before = deal_of(chain).end_height, chain.balance("alice")
    chain.skip_to(end)
    assert deal_of(chain).status == "pending"
    chain.skip_to(end + 1)
    assert (deal_of(chain).status, deal_of(chain).escrow) == ("lapsed", 0)
    assert chain.balance("alice") == before + PRICE * 10
    assert list(tables.DEALS_BY_END.iterate(chain.state)) == []


def test_activation_needs_the_receipt_of_each_provider_for_this_deal() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    deal = deal_of(chain)
    good = receipts(deal)
    assert chain.refused("alice", replace(good, receipts=good.receipts[:2])) == 116
    swapped = ((good.receipts[0][0], good.receipts[1][1]), *good.receipts[1:])
    assert chain.refused("alice", replace(good, receipts=swapped)) == 116
    assert chain.refused("alice", receipts(deal, deal_id=2)) == 116
    assert chain.refused("alice", receipts(deal, chain_id="other")) == 116
    assert chain.refused("alice", replace(good, receipts=())) == 116
    chain.ok("alice", good)
    assert chain.refused("alice", good) == 114


def test_receipts_of_a_deleted_deal_activate_nothing() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    old = receipts(deal_of(chain))
    chain.ok("alice", m.DeleteDeal(deal_id=1))
    chain.ok("alice", replace(CREATE, key=sha256(b"again")))
    assert chain.refused("alice", old) == 114
    assert chain.refused("alice", replace(old, deal_id=2)) == 116


def test_unknown_deals_are_refused() -> None:
    chain = Chain()
    for message in (
        m.ActivateDeal(deal_id=1, receipts=()),
        m.ExtendDeal(deal_id=2**63 - 1, blocks=1),
        m.DeleteDeal(deal_id=1),
    ):
        assert chain.refused("alice", message) == 110


# --- expiry -------------------------------------------------------------------------------------------------------
def test_deal_is_served_through_its_end_height_and_then_paid_in_full() -> None:
    chain = active()
    end = deal_of(chain).end_height
    chain.skip_to(end)
    assert deal_of(chain).status == "active"
    assert provider_income(chain) == 0
    chain.skip_to(end + 1)
    deal = deal_of(chain)
    assert (deal.status, deal.escrow, deal.closed_height) == ("expired", 0, end + 1)
    assert provider_income(chain) == PRICE * 10
    assert {chain.balance(NAMES[op]) for op in deal.providers} == {START_BALANCE + PRICE * 10 // 3}


def test_several_deals_end_in_one_block() -> None:
    chain = Chain()
    txs = [chain.tx("alice", replace(CREATE, key=sha256(b"%d" % i)), nonce_ahead=i) for i in range(3)]
    chain.block(*txs)
    chain.block(*[chain.tx("bob", receipts(deal_of(chain, i + 1)), nonce_ahead=i) for i in range(3)])
    chain.skip_to(chain.height + 11)
    assert [deal_of(chain, i).status for i in (1, 2, 3)] == ["expired"] * 3
    assert [e.attributes["deal_id"] for e in chain.events] == ["1", "2", "3"]


def test_a_block_ends_a_limited_number_of_deals_and_the_rest_gains_nothing_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deals, "MAX_CLOSED_PER_BLOCK", 3)
    chain = Chain(make_genesis(Params(deal_pending_blocks=11)))
    orders = [replace(CREATE, key=sha256(b"%d" % i)) for i in range(8)]
    chain.block(*[chain.tx("alice", order, nonce_ahead=i) for i, order in enumerate(orders)])
    chain.block(*[chain.tx("bob", receipts(deal_of(chain, i)), nonce_ahead=i - 1) for i in range(1, 8)])
    end, refund = deal_of(chain).end_height, PRICE * 10
    assert {deal_of(chain, i).end_height for i in range(1, 9)} == {end}, "seven active, one never activated"
    chain.skip_to(end + 1)
    assert [deal_of(chain, i).status for i in range(1, 9)] == ["expired"] * 3 + ["active"] * 4 + ["pending"]
    assert provider_income(chain) == PRICE * 10 * 3
    assert chain.refused("bob", m.ExtendDeal(deal_id=7, blocks=1)) == 115
    assert chain.refused("alice", m.DeleteDeal(deal_id=7)) == 115
    assert chain.refused("bob", receipts(deal_of(chain, 8))) == 114
    late = chain.tx("alice", replace(CREATE, key=sha256(b"late"), duration=1))
    chain.block(late)
    assert [event.attributes["deal_id"] for event in chain.events] == ["9", "4", "5", "6"]
    before = chain.balance("alice")
    chain.block()
    assert [deal_of(chain, i).status for i in range(1, 9)] == ["expired"] * 7 + ["lapsed"]
    assert {deal_of(chain, i).closed_height for i in range(1, 9)} == {end + 1}
    assert provider_income(chain) == PRICE * 10 * 7, "paid to the end height, however late it was closed"
    assert chain.balance("alice") == before + refund
    assert [deal_id for _, deal_id in living(chain)] == [9]


def test_deals_are_closed_faster_than_a_block_can_make_them() -> None:
    params = Params()
    assert params.max_block_work // minimum_fee([CREATE], params) < deals.MAX_CLOSED_PER_BLOCK
    assert params.max_block_work // WORK[m.CreateDeal] < deals.MAX_CLOSED_PER_BLOCK


# --- extend -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 115)])
def test_living_deal_can_be_extended_through_its_end_height(offset: int, code: int) -> None:
    chain = active()
    end = deal_of(chain).end_height
    chain.skip_to(end + offset - 1)
    assert chain.send("bob", m.ExtendDeal(deal_id=1, blocks=7)).code == code


def test_extension_is_paid_by_its_sender_and_moves_the_end() -> None:
    chain = active()
    end, before = deal_of(chain).end_height, chain.balance("bob")
    receipt = chain.ok("bob", m.ExtendDeal(deal_id=1, blocks=7))
    assert chain.balance("bob") == before - 7 * PRICE - receipt.work_used
    chain.skip_to(end + 7)
    assert deal_of(chain).status == "active"
    chain.skip_to(end + 8)
    assert deal_of(chain).status == "expired"
    assert provider_income(chain) == PRICE * 17


def test_extension_is_checked() -> None:
    chain = active()
    assert chain.refused("bob", m.ExtendDeal(deal_id=1, blocks=10_000_000)) == 117
    assert chain.refused("bob", m.ExtendDeal(deal_id=1, blocks=2**63 - 1)) == 117
    assert chain.refused("bob", m.ExtendDeal(deal_id=1, blocks=START_BALANCE // PRICE)) in (22, 117)
    pending = Chain()
    pending.ok("alice", CREATE)
    assert pending.refused("alice", m.ExtendDeal(deal_id=1, blocks=1)) == 115


def test_extension_that_the_sender_cannot_pay_is_refused() -> None:
    chain = active(size=1 << 30, duration=10)
    assert chain.refused("bob", m.ExtendDeal(deal_id=1, blocks=9_000_000)) == 22


# --- delete -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("blocks", [1, 4, 10])
def test_delete_pays_for_the_time_passed_and_refunds_the_rest(blocks: int) -> None:
    chain = active()
    chain.skip_to(deal_of(chain).start_height + blocks - 1)
    before = chain.balance("alice")
    receipt = chain.ok("alice", m.DeleteDeal(deal_id=1))
    assert provider_income(chain) == PRICE * blocks
    assert chain.balance("alice") == before + PRICE * (10 - blocks) - receipt.work_used
    assert (deal_of(chain).status, deal_of(chain).escrow) == ("deleted", 0)
    chain.skip_to(deal_of(chain).end_height + 1)
    assert deal_of(chain).status == "deleted"


def test_pending_deal_is_called_off_at_no_cost() -> None:
    chain = Chain()
    chain.ok("alice", CREATE)
    before = chain.balance("alice")
    receipt = chain.ok("alice", m.DeleteDeal(deal_id=1))
    assert chain.balance("alice") == before + PRICE * 10 - receipt.work_used
    assert provider_income(chain) == 0


def test_deal_created_activated_and_deleted_in_one_block_costs_nothing() -> None:
    chain = Chain()
    context = chain.context()
    chain.ok("alice", CREATE)
    assert context.height == deal_of(chain).created_height
    signed = receipts(deal_of(chain))
    chain.ok("alice", signed, m.DeleteDeal(deal_id=1))
    assert provider_income(chain) == 0
    assert conservation_gap(chain.state) == 0


def test_delete_is_for_the_owner_and_once() -> None:
    chain = active()
    assert chain.refused("bob", m.DeleteDeal(deal_id=1)) == 111
    chain.ok("alice", m.DeleteDeal(deal_id=1))
    assert chain.refused("alice", m.DeleteDeal(deal_id=1)) == 115
    assert chain.refused("alice", m.ExtendDeal(deal_id=1, blocks=1)) == 115


def test_delete_after_the_end_is_refused() -> None:
    chain = active()
    chain.skip_to(deal_of(chain).end_height)
    assert chain.refused("alice", m.DeleteDeal(deal_id=1)) == 115
    chain.skip_to(chain.height + 1)
    assert chain.refused("alice", m.DeleteDeal(deal_id=1)) == 115


def test_provider_that_was_jailed_meanwhile_is_still_paid_for_what_it_held() -> None:
    chain = active(replicas=4)
    chain.block(evidence=[double_sign("v0")])
    chain.skip_to(deal_of(chain).end_height + 1)
    assert chain.balance("v0") == START_BALANCE + 3 * 4 * 10
    assert chain.validator("v0").bond == 95 * TOKEN
