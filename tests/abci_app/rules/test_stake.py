"""Validators: registration, bonding, unbonding, services, evidence, and what CometBFT is told."""

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.params import Params
from abci_app.rules.stake import MAX_UNBONDINGS
from abci_app.rules.validators import active_stake
from tests.abci_app.rules.chain import (
    START_BALANCE,
    TOKEN,
    VALIDATORS,
    Chain,
    address,
    double_sign,
    make_genesis,
    possession,
    public,
    service,
)

REGISTER_FEE = 2100


def register(name: str, *, bond: int = 10 * TOKEN, proof: bytes = b"") -> m.RegisterValidator:
    return m.RegisterValidator(consensus_key=public(name), possession_proof=proof or possession(name), bond=bond)


# --- registration -------------------------------------------------------------------------------------------------
def test_new_validator_joins_consensus_and_the_service_set() -> None:
    chain = Chain()
    chain.ok("alice", register("alice", bond=25 * TOKEN + 1))
    assert chain.end.validator_updates == ((public("alice"), 25),)
    assert chain.balance("alice") == START_BALANCE - REGISTER_FEE - 25 * TOKEN - 1
    assert chain.service_set().version == 2
    assert [member.operator for member in chain.service_set().members] == sorted(
        address(name) for name in (*VALIDATORS, "alice")
    )


@pytest.mark.parametrize(("bond", "code"), [(10 * TOKEN - 1, 43), (10 * TOKEN, 0), (10 * TOKEN + 1, 0)])
def test_bond_must_reach_the_minimum(bond: int, code: int) -> None:
    chain = Chain()
    assert chain.send("alice", register("alice", bond=bond)).code == code


def test_operator_has_one_validator() -> None:
    assert Chain().refused("v0", register("alice", proof=possession("alice", operator="v0"))) == 41


def test_consensus_key_is_never_used_twice_even_after_its_validator_left() -> None:
    chain = Chain()
    assert chain.refused("alice", register("v0", proof=possession("v0", operator="alice"))) == 48
    chain.ok("v0", m.Unbond(amount=100 * TOKEN))
    chain.skip_to(chain.height + chain.params.unbonding_blocks + 1)
    assert chain.refused("alice", register("v0", proof=possession("v0", operator="alice"))) == 48


@pytest.mark.parametrize(
    "proof",
    [bytes(64), possession("alice", chain_id="other"), possession("alice", operator="bob"), possession("bob")],
    ids=["zeros", "other chain", "other operator", "other key"],
)
def test_possession_of_the_consensus_key_must_be_proven(proof: bytes) -> None:
    assert Chain().refused("alice", register("alice", proof=proof)) == 42


def test_bond_that_the_account_does_not_have_is_refused() -> None:
    assert Chain().refused("alice", register("alice", bond=START_BALANCE)) == 22


def test_only_the_validators_with_the_most_stake_take_part() -> None:
    chain = Chain(make_genesis(Params(max_validators=4), stakes=(100, 100, 100, 20)))
    chain.ok("alice", register("alice", bond=10 * TOKEN))
    assert chain.end.validator_updates == ()
    chain.ok("alice", m.Bond(amount=11 * TOKEN))
    assert set(chain.end.validator_updates) == {(public("alice"), 21), (public("v3"), 0)}
    assert address("v3") not in [member.operator for member in chain.service_set().members]


# --- bond and unbond ----------------------------------------------------------------------------------------------
def test_bond_changes_the_power_once_per_block_and_only_when_it_changes() -> None:
    chain = Chain()
    txs = [chain.tx("v0", m.Bond(amount=TOKEN), nonce_ahead=i) for i in range(3)]
    chain.block(*txs, chain.tx("v1", m.Bond(amount=1)))
    assert chain.end.validator_updates == ((public("v0"), 103),)
    chain.block()
    assert chain.end.validator_updates == ()


def test_updates_are_sorted_by_key() -> None:
    chain = Chain()
    chain.block(*[chain.tx(v, m.Bond(amount=TOKEN)) for v in VALIDATORS])
    assert chain.end.validator_updates == tuple(sorted((public(v), 101) for v in VALIDATORS))


@pytest.mark.parametrize("message", [m.Bond(amount=TOKEN), m.Unbond(amount=TOKEN)])
def test_stake_messages_are_for_operators(message: m.Message) -> None:
    assert Chain().refused("alice", message) == 40


def test_bond_that_the_operator_does_not_have_is_refused() -> None:
    assert Chain().refused("v0", m.Bond(amount=START_BALANCE)) == 22


@pytest.mark.parametrize(
    ("amount", "code"),
    [(90, 0), (90 * TOKEN, 0), (90 * TOKEN + 1, 43), (100 * TOKEN - 1, 43), (100 * TOKEN, 0), (100 * TOKEN + 1, 22)],
)
def test_unbond_leaves_the_minimum_or_nothing(amount: int, code: int) -> None:
    chain = Chain()
    assert chain.send("v0", m.Unbond(amount=amount)).code == code


def test_unbonded_stake_comes_back_when_the_release_height_has_passed() -> None:
    chain = Chain()
    chain.ok("v0", m.Unbond(amount=50 * TOKEN))
    release = chain.height + chain.params.unbonding_blocks
    assert chain.end.validator_updates == ((public("v0"), 50),)
    before = chain.balance("v0")
    chain.skip_to(release)
    assert chain.balance("v0") == before
    chain.skip_to(release + 1)
    assert chain.balance("v0") == before + 50 * TOKEN
    assert list(tables.UNBONDINGS.iterate(chain.state)) == []


def test_two_unbondings_in_one_block_come_back_both() -> None:
    chain = Chain()
    before = chain.balance("v0")
    chain.block(*[chain.tx("v0", m.Unbond(amount=TOKEN), nonce_ahead=i) for i in range(2)])
    chain.skip_to(chain.height + chain.params.unbonding_blocks + 1)
    assert chain.balance("v0") == before - 2 * 500 + 2 * TOKEN


def test_validator_that_left_may_come_back_with_the_minimum() -> None:
    chain = Chain()
    chain.ok("v0", m.Unbond(amount=100 * TOKEN))
    assert chain.end.validator_updates == ((public("v0"), 0),)
    assert chain.refused("v0", m.Bond(amount=10 * TOKEN - 1)) == 43
    chain.ok("v0", m.Bond(amount=10 * TOKEN))
    assert chain.end.validator_updates == ((public("v0"), 10),)


def test_last_active_validator_cannot_leave() -> None:
    chain = Chain()
    chain.block(*[chain.tx(v, m.Unbond(amount=100 * TOKEN)) for v in VALIDATORS[:3]])
    assert chain.refused("v3", m.Unbond(amount=100 * TOKEN)) == 44
    chain.ok("v3", m.Unbond(amount=90 * TOKEN))


def test_all_validators_leaving_in_one_block_leaves_the_last_one() -> None:
    chain = Chain()
    receipts = chain.block(*[chain.tx(v, m.Unbond(amount=100 * TOKEN)) for v in VALIDATORS])
    assert [receipt.code for receipt in receipts] == [0, 0, 0, 44]
    assert set(chain.end.validator_updates) == {(public(v), 0) for v in VALIDATORS[:3]}


# --- services -----------------------------------------------------------------------------------------------------
def test_new_address_makes_a_new_version_of_the_service_set() -> None:
    chain = Chain()
    chain.ok("v0", service("v0"))
    assert chain.service_set().version == 2
    assert "http://10.0.0.1:26602" in [member.url for member in chain.service_set().members]
    chain.ok("v0", service("v0"))
    assert chain.service_set().version == 2, "nothing changed"


def test_old_service_sets_are_dropped() -> None:
    chain = Chain(make_genesis(Params(kept_service_sets=2, unbonding_blocks=1)))
    for port in range(1, 6):
        chain.ok("v0", service("v0", url=f"http://10.0.0.1:{port}"))
    kept = [record.version for _, record in tables.SERVICE_SETS.iterate(chain.state)]
    assert kept == [4, 5, 6], "the newest and two older ones"


def test_service_sets_stay_as_long_as_certificates_may_name_them() -> None:
    chain = Chain(make_genesis(Params(kept_service_sets=2, unbonding_blocks=4)))
    for height in range(1, 12):
        chain.ok("v0", m.Bond(amount=1))
        kept = [record.version for _, record in tables.SERVICE_SETS.iterate(chain.state)]
        ends = [int.from_bytes(key[-8:], "big") for key, _ in tables.SERVICE_SET_ENDS.iterate(chain.state)]
        assert kept == list(range(max(1, height - 4), height + 2)), "version v was replaced at height v"
        assert ends == kept[:-1]


def test_service_key_of_another_validator_is_refused_even_when_no_longer_used() -> None:
    chain = Chain()
    chain.ok("v0", service("v0 new", operator="v0"))
    assert chain.refused("v1", service("v0", operator="v1")) == 47
    assert chain.refused("v1", service("v0 new", operator="v1")) == 47
    chain.ok("v0", service("v0"))


@pytest.mark.parametrize(
    "stolen",
    [
        replace(service("v1 new", operator="v1"), possession_proof=bytes(64)),
        replace(service("v1 new", operator="v0"), possession_proof=service("v1 new", operator="v1").possession_proof),
        service("v1 new", operator="v0", chain_id="other"),
        replace(service("v1 new", operator="v0"), service_key=service("v0").service_key),
        replace(service("v1 new", operator="v0"), service_key=b"\xff" * 32),
    ],
    ids=["zeros", "copied from its owner", "other chain", "other key", "no key at all"],
)
def test_nobody_takes_a_service_key_that_it_does_not_hold(stolen: m.RegisterService) -> None:
    chain = Chain()
    assert chain.refused("v0", stolen) == 42
    chain.ok("v1", service("v1 new", operator="v1"))


def test_service_is_for_operators() -> None:
    assert Chain().refused("alice", service("alice")) == 40


# --- evidence -----------------------------------------------------------------------------------------------------
def test_double_signature_slashes_bond_and_unbonding_and_jails_for_good() -> None:
    chain = Chain()
    chain.ok("v0", m.Unbond(amount=40 * TOKEN))
    burned = chain.burned
    chain.block(evidence=[double_sign("v0")])
    assert chain.validator("v0").bond == 57 * TOKEN
    assert chain.validator("v0").jailed
    assert [u.amount for _, u in tables.UNBONDINGS.iterate(chain.state)] == [38 * TOKEN]
    assert chain.burned == burned + 5 * TOKEN
    assert chain.end.validator_updates == ((public("v0"), 0),)
    assert address("v0") not in [member.operator for member in chain.service_set().members]
    assert chain.refused("v0", m.Bond(amount=TOKEN)) == 46
    assert chain.refused("v0", service("v0")) == 46
    assert active_stake(chain.state, address("v0")) == 0


def test_evidence_twice_in_a_block_and_again_later_punishes_once() -> None:
    chain = Chain()
    chain.block(evidence=[double_sign("v0"), double_sign("v0", height=2)])
    bond = chain.validator("v0").bond
    assert bond == 95 * TOKEN
    chain.block(evidence=[double_sign("v0")])
    assert chain.validator("v0").bond == bond
    assert chain.end.validator_updates == ()


def test_evidence_counts_for_as_long_as_stake_of_its_height_may_be_there() -> None:
    """CometBFT counts its age up to the block before the one that it stands in."""
    chain = Chain(make_genesis(Params(unbonding_blocks=5)))
    chain.skip_to(10)
    chain.block(evidence=[double_sign("v0", height=4), double_sign("v1", height=5)])
    assert not chain.validator("v0").jailed
    assert chain.validator("v1").jailed
    assert chain.validator("v0").bond == 100 * TOKEN


def test_stake_taken_out_after_the_double_signature_is_cut_up_to_its_last_block() -> None:
    chain = Chain(make_genesis(Params(unbonding_blocks=5)))
    chain.ok("v0", m.Unbond(amount=100 * TOKEN))
    left_at = chain.height
    before = chain.balance("v0")
    chain.skip_to(left_at + 5)
    chain.block(evidence=[double_sign("v0", height=left_at)])
    assert chain.balance("v0") == before + 95 * TOKEN
    assert list(tables.UNBONDINGS_OF.iterate(chain.state)) == []


def test_a_double_signature_cuts_all_unbondings_of_its_validator_and_of_nobody_else() -> None:
    chain = Chain()
    for amount in (3 * TOKEN, 2 * TOKEN):
        chain.block(*[chain.tx(v, m.Unbond(amount=amount), nonce_ahead=i) for v in VALIDATORS[:2] for i in (0, 1)])
    burned = chain.burned
    chain.block(evidence=[double_sign("v1")])
    left = {
        v: [u.amount for _, u in tables.UNBONDINGS.iterate(chain.state) if u.owner == address(v)] for v in VALIDATORS
    }
    assert left == {
        "v0": [3 * TOKEN, 3 * TOKEN, 2 * TOKEN, 2 * TOKEN],
        "v1": [2_850_000, 2_850_000, 1_900_000, 1_900_000],
        "v2": [],
        "v3": [],
    }
    assert chain.burned == burned + 5 * TOKEN


def test_a_validator_takes_stake_out_in_so_many_parts_at_a_time_and_no_more() -> None:
    chain = Chain(make_genesis(Params(unbonding_blocks=3)))
    parts = [chain.tx("v0", m.Unbond(amount=1), nonce_ahead=i) for i in range(MAX_UNBONDINGS + 1)]
    receipts = chain.block(*parts)
    assert [receipt.code for receipt in receipts] == [0] * MAX_UNBONDINGS + [49]
    assert chain.refused("v0", m.Unbond(amount=1)) == 49
    chain.ok("v1", m.Unbond(amount=1))
    chain.skip_to(chain.height + 3)
    chain.ok("v0", m.Unbond(amount=1))


def test_evidence_against_an_unknown_key_is_skipped() -> None:
    chain = Chain()
    before = dict(chain.state.items)
    chain.block(evidence=[double_sign("nobody")])
    assert chain.state.items == before


def test_validator_that_left_is_still_slashed_while_its_stake_is_unbonding() -> None:
    chain = Chain()
    chain.ok("v0", m.Unbond(amount=100 * TOKEN))
    chain.block(evidence=[double_sign("v0")])
    before = chain.balance("v0")
    chain.skip_to(chain.height + chain.params.unbonding_blocks + 1)
    assert chain.balance("v0") == before + 95 * TOKEN


def test_jailed_validator_may_take_out_what_is_left() -> None:
    chain = Chain()
    chain.block(evidence=[double_sign("v0")])
    chain.ok("v0", m.Unbond(amount=94 * TOKEN))
    chain.ok("v0", m.Unbond(amount=TOKEN))
    assert chain.validator("v0").bond == 0


def test_chain_keeps_its_last_powers_when_all_validators_are_jailed() -> None:
    chain = Chain()
    chain.block(evidence=[double_sign(v) for v in VALIDATORS])
    assert chain.end.validator_updates == ()
    assert chain.service_set().version == 1
    assert chain.refused("v0", m.Unbond(amount=TOKEN)) == 44
    chain.ok("alice", register("alice"))
    assert set(chain.end.validator_updates) == {(public("alice"), 10)} | {(public(v), 0) for v in VALIDATORS}
    chain.ok("v0", m.Unbond(amount=TOKEN))


def test_slash_of_a_tiny_unbonding_takes_at_least_one_unit() -> None:
    chain = Chain()
    chain.ok("v0", m.Unbond(amount=1))
    chain.block(evidence=[double_sign("v0")])
    assert [u.amount for _, u in tables.UNBONDINGS.iterate(chain.state)] == [0]
    chain.skip_to(chain.height + chain.params.unbonding_blocks + 2)
    assert list(tables.UNBONDINGS.iterate(chain.state)) == []


# --- workers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("bond", "code"), [(10 * TOKEN - 1, 43), (10 * TOKEN, 0)])
def test_worker_bond_must_reach_the_minimum(bond: int, code: int) -> None:
    assert Chain().send("w0", m.RegisterWorker(bond=bond)).code == code


def test_worker_registers_once_and_gets_its_bond_back_after_the_unbonding_time() -> None:
    chain = Chain()
    assert chain.refused("w0", m.RetireWorker()) == 50
    chain.ok("w0", m.RegisterWorker(bond=10 * TOKEN))
    assert chain.refused("w0", m.RegisterWorker(bond=10 * TOKEN)) == 51
    before = chain.balance("w0")
    chain.ok("w0", m.RetireWorker())
    release = chain.height + chain.params.unbonding_blocks
    chain.skip_to(release)
    assert chain.balance("w0") == before - 500
    chain.skip_to(release + 1)
    assert chain.balance("w0") == before - 500 + 10 * TOKEN
    assert chain.refused("w0", m.RetireWorker()) == 50


def test_worker_bond_that_the_account_does_not_have_is_refused() -> None:
    assert Chain().refused("w0", m.RegisterWorker(bond=START_BALANCE)) == 22


def test_evidence_does_not_touch_the_worker_bond_of_the_same_account() -> None:
    chain = Chain()
    chain.ok("v0", m.RegisterWorker(bond=10 * TOKEN))
    chain.ok("v0", m.RetireWorker())
    chain.block(evidence=[double_sign("v0")])
    assert [u.amount for _, u in tables.UNBONDINGS.iterate(chain.state)] == [10 * TOKEN]
