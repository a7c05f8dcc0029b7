"""Bonding, unbonding, validators' services, and what a double signature costs."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext, Event, Evidence
from abci_app.errors import (
    BadPossessionProof,
    BondTooSmall,
    ConsensusKeyTaken,
    InsufficientFunds,
    LastValidator,
    ServiceKeyTaken,
    TooManyUnbondings,
    ValidatorExists,
    ValidatorJailed,
)
from abci_app.ledger import burn, counters_of, credit, debit, params_of
from abci_app.records import Unbonding, Validator
from abci_app.rules.effect import NOTHING_TO_TELL, Effect
from abci_app.rules.validators import active_operators, consensus_address, put_validator, validator_of
from abci_app.state import Branch, ReadableState
from abci_app.transactions import possession_digest, service_possession_digest
from primitives.amounts import slash_amount
from primitives.keys import format_address, verify_signature

Role = Literal["validator", "worker"]

MAX_UNBONDINGS: Final = 64
"""Of one validator at a time: what a double signature has to cut stays little, however the stake was taken out."""


def register_validator(branch: Branch, message: m.RegisterValidator, sender: bytes, block: BlockContext) -> Effect:
    """Raises: ValidatorExists, ConsensusKeyTaken, BondTooSmall, BadPossessionProof, InsufficientFunds."""
    if tables.VALIDATORS.get(branch, sender) is not None:
        raise ValidatorExists("the sender operates a validator already")
    key_address = consensus_address(message.consensus_key)
    if tables.CONSENSUS_KEYS.get(branch, key_address) is not None:
        raise ConsensusKeyTaken("this consensus key is or was another validator's")
    _need_bond(branch, message.bond)
    if not _proves_possession(message, block.chain_id, sender):
        raise BadPossessionProof("possession_proof is not a signature of the consensus key over the operator's address")
    debit(branch, sender, message.bond)
    tables.CONSENSUS_KEYS.put(branch, tables.ConsensusKey(operator=sender, key=message.consensus_key), key_address)
    put_validator(branch, Validator(operator=sender, consensus_key=message.consensus_key, bond=message.bond))
    return NOTHING_TO_TELL


def bond(branch: Branch, message: m.Bond, sender: bytes, block: BlockContext) -> Effect:
    """Also brings back a validator that had unbonded everything, if the new bond reaches the minimum.

    Raises: UnknownValidator, ValidatorJailed, BondTooSmall, InsufficientFunds.
    """
    validator = _unjailed_validator(branch, sender)
    _need_bond(branch, validator.bond + message.amount)
    debit(branch, sender, message.amount)
    put_validator(branch, replace(validator, bond=validator.bond + message.amount))
    return NOTHING_TO_TELL


def unbond(branch: Branch, message: m.Unbond, sender: bytes, block: BlockContext) -> Effect:
    """Leaves at least the minimum bond or nothing; a jailed validator takes out what it likes.

    While nobody else is active nothing may leave: the last validator, jailed or not, keeps the chain going.

    Raises: UnknownValidator, InsufficientFunds, BondTooSmall, LastValidator, TooManyUnbondings.
    """
    validator = validator_of(branch, sender)
    left = validator.bond - message.amount
    if left < 0:
        raise InsufficientFunds(need=message.amount, have=validator.bond)
    if left and not validator.jailed:
        _need_bond(branch, left)
    if (left == 0 or validator.jailed) and all(operator == sender for operator in active_operators(branch)):
        raise LastValidator("no other active validator would be left")
    if sum(1 for _ in _unbondings_of(branch, sender)) >= MAX_UNBONDINGS:
        raise TooManyUnbondings(limit=MAX_UNBONDINGS)
    put_validator(branch, replace(validator, bond=left))
    start_unbonding(branch, sender, message.amount, "validator", block)
    return NOTHING_TO_TELL


def register_service(branch: Branch, message: m.RegisterService, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownValidator, ValidatorJailed, ServiceKeyTaken, BadPossessionProof."""
    validator = _unjailed_validator(branch, sender)
    taken = tables.SERVICE_KEYS.get(branch, message.service_key)
    if taken is not None and taken.operator != sender:
        raise ServiceKeyTaken("this service key is or was another validator's")
    digest = service_possession_digest(block.chain_id, sender)
    if not verify_signature(message.service_key, digest, message.possession_proof):
        raise BadPossessionProof("possession_proof is not a signature of the service key over the operator's address")
    tables.SERVICE_KEYS.put(branch, tables.ServiceKey(operator=sender), message.service_key)
    put_validator(branch, replace(validator, service_key=message.service_key, url=message.url))
    return NOTHING_TO_TELL


def _unjailed_validator(branch: Branch, sender: bytes) -> Validator:
    validator = validator_of(branch, sender)
    if validator.jailed:
        raise ValidatorJailed("the validator is jailed for a double signature")
    return validator


def _need_bond(branch: Branch, amount: int) -> None:
    least = params_of(branch).min_validator_bond
    if amount < least:
        raise BondTooSmall(got=amount, want=least)


def _proves_possession(message: m.RegisterValidator, chain_id: str, operator: bytes) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(message.consensus_key)
        key.verify(message.possession_proof, possession_digest(chain_id, operator))
    except (InvalidSignature, ValueError):
        return False
    return True


# --- unbonding ----------------------------------------------------------------------------------------------------
def start_unbonding(branch: Branch, owner: bytes, amount: int, role: Role, block: BlockContext) -> None:
    """Hold `amount` (taken from a bond by the caller) until the unbonding time has passed. Zero needs no record."""
    if not amount:
        return
    counters = counters_of(branch)
    tables.COUNTERS.put(branch, replace(counters, next_unbonding=counters.next_unbonding + 1))
    record = Unbonding(
        id=counters.next_unbonding,
        owner=owner,
        amount=amount,
        release_height=block.height + params_of(branch).unbonding_blocks,
        role=role,
    )
    tables.UNBONDINGS.put(branch, record, record.release_height, record.id)
    if role == "validator":
        tables.UNBONDINGS_OF.put(branch, tables.Marker(), owner, record.release_height, record.id)


def release_unbondings(branch: Branch, block: BlockContext) -> None:
    """End of block: pay out what was due before this height (height > release_height)."""
    for _, record in tables.UNBONDINGS.iterate(branch):
        if record.release_height >= block.height:
            break
        tables.UNBONDINGS.delete(branch, record.release_height, record.id)
        tables.UNBONDINGS_OF.delete(branch, record.owner, record.release_height, record.id)
        credit(branch, record.owner, record.amount)


def _unbondings_of(state: ReadableState, operator: bytes) -> Iterator[tuple[int, int]]:
    """(release height, id) of the stake that this validator is taking out, in that order."""
    prefix = len(tables.UNBONDINGS_OF.key(operator))
    for key, _ in tables.UNBONDINGS_OF.iterate(state, operator):
        yield int.from_bytes(key[prefix : prefix + 8], "big"), int.from_bytes(key[prefix + 8 :], "big")


# --- evidence -----------------------------------------------------------------------------------------------------
def punish(branch: Branch, evidence: Sequence[Evidence], block: BlockContext) -> list[Event]:
    """Slash and jail each validator that signed twice, once however often it is reported.

    Unknown ones are skipped, and evidence so old that the stake of its height may have been paid out.
    """
    last_age = params_of(branch).unbonding_blocks
    events: list[Event] = []
    for entry in evidence:
        known = tables.CONSENSUS_KEYS.get(branch, entry.consensus_address)
        validator = tables.VALIDATORS.get(branch, known.operator) if known else None
        if validator is None or validator.jailed or _age(entry, block) > last_age:
            continue
        _slash(branch, validator)
        events.append(Event("validator", {"operator": format_address(validator.operator), "jailed": "true"}))
    return events


def _age(entry: Evidence, block: BlockContext) -> int:
    """In blocks, as CometBFT counts: up to the block before this one.

    CometBFT itself lets evidence pass that is too old in blocks as long as it is young enough in seconds.
    """
    return block.height - 1 - entry.height


def _slash(branch: Branch, validator: Validator) -> None:
    ppm = params_of(branch).slash_double_sign_ppm
    burned = slash_amount(validator.bond, ppm)
    put_validator(branch, replace(validator, bond=validator.bond - burned, jailed=True))
    for key in _unbondings_of(branch, validator.operator):
        record = tables.UNBONDINGS.get(branch, *key)
        if record is None:
            raise LookupError("an unbonding is in the index of its owner and nowhere else")
        part = slash_amount(record.amount, ppm)
        burned += part
        tables.UNBONDINGS.put(branch, replace(record, amount=record.amount - part), *key)
    burn(branch, burned)
