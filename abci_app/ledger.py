"""Money: the only place that changes balances and the burned total, and the sum that must never change.

balances + bonds + unbonding + worker bonds + job escrows + deal escrows + burned = supply, after every block.
"""

from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from abci_app import tables
from abci_app.errors import InsufficientFunds
from abci_app.params import Params
from abci_app.records import Account, Counters
from abci_app.state import Branch, ReadableState
from primitives.encoding import OwnDecoder

_PARAMS_KEY: Final = tables.PARAMS.key()
_decode_params_once: Final = lru_cache(maxsize=16)(OwnDecoder(Params))
"""Decoding checks each of some thirty numbers, and every transaction asks for them."""


def account_of(state: ReadableState, address: bytes) -> Account:
    """The account, or an empty one where nothing has been written yet."""
    return tables.ACCOUNTS.get(state, address) or Account()


def debit(branch: Branch, address: bytes, amount: int) -> None:
    """Take `amount` (>= 0) from a balance.

    Raises: InsufficientFunds, with nothing written.
    """
    account = account_of(branch, address)
    if account.balance < amount:
        raise InsufficientFunds(need=amount, have=account.balance)
    if amount:
        tables.ACCOUNTS.put(branch, replace(account, balance=account.balance - amount), address)


def credit(branch: Branch, address: bytes, amount: int) -> None:
    """Add `amount` (>= 0) to a balance. Cannot overflow: no balance exceeds the supply."""
    if amount:
        account = account_of(branch, address)
        tables.ACCOUNTS.put(branch, replace(account, balance=account.balance + amount), address)


def burn(branch: Branch, amount: int) -> None:
    """Count `amount` (>= 0), taken from somewhere else by the caller, as burned."""
    if amount:
        counters = counters_of(branch)
        tables.COUNTERS.put(branch, replace(counters, burned=counters.burned + amount))


def counters_of(state: ReadableState) -> Counters:
    return tables.COUNTERS.get(state) or Counters()


def params_of(state: ReadableState) -> Params:
    """The chain's parameters (written once, at genesis)."""
    encoded = state.get(_PARAMS_KEY)
    if encoded is None:
        raise LookupError("the state has no parameters: genesis has not been applied")
    return _decode_params_once(encoded)


def conservation_gap(state: ReadableState) -> int:
    """supply - (everything that is somewhere); 0 unless a rule is wrong. Walks the whole state: for tests, audits."""
    counters = counters_of(state)
    held = counters.burned
    held += sum(account.balance for _, account in tables.ACCOUNTS.iterate(state))
    held += sum(validator.bond for _, validator in tables.VALIDATORS.iterate(state))
    held += sum(unbonding.amount for _, unbonding in tables.UNBONDINGS.iterate(state))
    held += sum(worker.bond for _, worker in tables.WORKERS.iterate(state))
    held += sum(job.escrow for _, job in tables.JOBS.iterate(state))
    held += sum(deal.escrow for _, deal in tables.DEALS.iterate(state))
    return counters.supply - held
