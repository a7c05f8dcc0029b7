"""Validators as the rest of the rules see them: who is active, with which stake, and what CometBFT is told.

A validator is active while it is not jailed and its bond is at least `min_validator_bond`; of those, the
`max_validators` with the most stake (then by operator) take part in consensus and are the members of the service set.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from abci_app import tables
from abci_app.block import BlockContext, Event
from abci_app.errors import UnknownValidator
from abci_app.ledger import counters_of, params_of
from abci_app.params import STAKE_PER_POWER, Params
from abci_app.records import Validator
from abci_app.state import Branch, ReadableState
from primitives.amounts import MAX_AMOUNT
from primitives.blobs import ServiceMember, ServiceSet
from primitives.keys import format_address


def consensus_address(consensus_key: bytes) -> bytes:
    """CometBFT's name for an Ed25519 key: the first 20 bytes of its SHA-256."""
    return hashlib.sha256(consensus_key).digest()[:20]


def validator_of(state: ReadableState, operator: bytes) -> Validator:
    """Raises: UnknownValidator."""
    validator = tables.VALIDATORS.get(state, operator)
    if validator is None:
        raise UnknownValidator("the sender is not the operator of a validator")
    return validator


def put_validator(branch: Branch, validator: Validator) -> None:
    """Write the record and keep the index of active validators true."""
    least = params_of(branch).min_validator_bond
    before = tables.VALIDATORS.get(branch, validator.operator)
    if before is not None and is_active(before, least):
        tables.ACTIVE_VALIDATORS.delete(branch, *_rank(before))
    tables.VALIDATORS.put(branch, validator, validator.operator)
    if is_active(validator, least):
        tables.ACTIVE_VALIDATORS.put(branch, tables.Marker(), *_rank(validator))


def _rank(validator: Validator) -> tuple[int, bytes]:
    return MAX_AMOUNT - validator.bond, validator.operator


def is_active(validator: Validator, min_validator_bond: int) -> bool:
    return not validator.jailed and validator.bond >= min_validator_bond


def active_operators(state: ReadableState) -> Iterator[bytes]:
    """Operators of all active validators, also those beyond `max_validators`: most stake first, then by operator."""
    prefix = len(tables.ACTIVE_VALIDATORS.key(0))
    for key, _ in tables.ACTIVE_VALIDATORS.iterate(state):
        yield key[prefix:]


def consensus_validators(state: ReadableState) -> list[Validator]:
    """The active validators with the most stake, sorted by operator. Looks at no others, however many there are."""
    chosen = islice(active_operators(state), params_of(state).max_validators)
    return [validator_of(state, operator) for operator in sorted(chosen)]


def active_stake(state: ReadableState, operator: bytes) -> int:
    """Bond of `operator` if it is an active validator, else 0."""
    validator = tables.VALIDATORS.get(state, operator)
    if validator is None or not is_active(validator, params_of(state).min_validator_bond):
        return 0
    return validator.bond


# --- end of block -------------------------------------------------------------------------------------------------
def update_powers(branch: Branch) -> tuple[tuple[tuple[bytes, int], ...], list[Event]]:
    """What CometBFT must be told: (consensus key, power) of each validator whose power changed, sorted by key.

    If nobody were left, nothing is changed: a chain keeps its last validators rather than none.
    """
    prefix = len(tables.POWERS.prefix)
    known = {key[prefix:]: record.power for key, record in tables.POWERS.iterate(branch)}
    wanted = {v.consensus_key: v.bond // STAKE_PER_POWER for v in consensus_validators(branch)}
    if not wanted:
        return (), []
    updates: list[tuple[bytes, int]] = []
    events: list[Event] = []
    for key in sorted(known.keys() | wanted.keys()):
        power = wanted.get(key, 0)
        if power == known.get(key, 0):
            continue
        updates.append((key, power))
        events.append(_power_event(branch, key, power))
        if power:
            tables.POWERS.put(branch, tables.Power(power), key)
        else:
            tables.POWERS.delete(branch, key)
    return tuple(updates), events


def _power_event(state: ReadableState, key: bytes, power: int) -> Event:
    owner = tables.CONSENSUS_KEYS.get(state, consensus_address(key))
    operator = format_address(owner.operator) if owner else ""
    return Event("validator", {"operator": operator, "power": str(power)})


def update_service_set(branch: Branch, block: BlockContext) -> None:
    """Write a new version of the service set if its members changed, and drop the versions that are too old now."""
    members = tuple(
        ServiceMember(operator=v.operator, stake=v.bond, service_key=v.service_key, url=v.url)
        for v in consensus_validators(branch)
    )
    counters = counters_of(branch)
    newest = tables.SERVICE_SETS.get(branch, counters.set_version)
    if not members or (newest is not None and newest.members == members):
        return
    version = counters.set_version + 1
    tables.COUNTERS.put(branch, replace(counters, set_version=version))
    tables.SERVICE_SETS.put(branch, ServiceSet(version=version, members=members), version)
    tables.SERVICE_SET_ENDS.put(branch, tables.Height(block.height), counters.set_version)
    _drop_service_sets(branch, version, block)


def may_be_named(ended: tables.Height, params: Params, block: BlockContext) -> bool:
    """Whether a certificate may still name a service set replaced at `ended`: its members' stake is not out."""
    return block.height <= ended.height + params.unbonding_blocks


def _drop_service_sets(branch: Branch, newest: int, block: BlockContext) -> None:
    """Never one that may still be named: else a validator that changes its stake in every block could make blobs
    impossible to certify within `kept_service_sets` blocks."""
    params = params_of(branch)
    for key, ended in tables.SERVICE_SET_ENDS.iterate(branch):
        version = int.from_bytes(key[len(tables.SERVICE_SET_ENDS.prefix) :], "big")
        if version >= newest - params.kept_service_sets or may_be_named(ended, params, block):
            return
        tables.SERVICE_SETS.delete(branch, version)
        tables.SERVICE_SET_ENDS.delete(branch, version)
