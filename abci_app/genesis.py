"""The state before the first block."""

from abci_app import tables
from abci_app.params import STAKE_PER_POWER, Genesis
from abci_app.records import Account, Counters, Validator
from abci_app.rules.validators import consensus_address, consensus_validators, put_validator
from abci_app.state import Branch
from primitives.blobs import ServiceMember, ServiceSet
from primitives.keys import parse_address


def write_genesis(branch: Branch, genesis: Genesis) -> None:
    """Write everything that `genesis` (checked by `parse_genesis`) says, and version 1 of the service set.

    CometBFT is taken to know each validator already, with power bond // STAKE_PER_POWER.
    """
    supply = sum(account.balance for account in genesis.accounts) + sum(v.bond for v in genesis.validators)
    tables.PARAMS.put(branch, genesis.params)
    for account in genesis.accounts:
        tables.ACCOUNTS.put(branch, Account(balance=account.balance), parse_address(account.address))
    for entry in genesis.validators:
        validator = Validator(
            operator=parse_address(entry.operator),
            consensus_key=bytes.fromhex(entry.consensus_key),
            bond=entry.bond,
            service_key=bytes.fromhex(entry.service_key),
            url=entry.url,
        )
        _write_validator(branch, validator)
    members = tuple(
        ServiceMember(operator=v.operator, stake=v.bond, service_key=v.service_key, url=v.url)
        for v in consensus_validators(branch)
    )
    tables.SERVICE_SETS.put(branch, ServiceSet(version=1, members=members), 1)
    tables.COUNTERS.put(branch, Counters(supply=supply, set_version=1))


def _write_validator(branch: Branch, validator: Validator) -> None:
    key = validator.consensus_key
    put_validator(branch, validator)
    tables.CONSENSUS_KEYS.put(branch, tables.ConsensusKey(validator.operator, key), consensus_address(key))
    tables.POWERS.put(branch, tables.Power(validator.bond // STAKE_PER_POWER), key)
    if validator.service_key:
        tables.SERVICE_KEYS.put(branch, tables.ServiceKey(validator.operator), validator.service_key)
