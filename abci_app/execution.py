"""What a block does to the state: begin, each transaction, end; and what CheckTx can say before there is a block.

Everything here is a function of state and block. A refused transaction leaves no trace but its fee and nonce, and those
only when a fee is due: valid signature, right nonce, affordable fee. Anything but InvalidTransaction that comes out of
here is a bug, and stops the node rather than fork the chain.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from abci_app import tables
from abci_app.block import BlockContext, EndOfBlock, Event, Evidence, Receipt
from abci_app.errors import (
    CODE_OK,
    BadSignature,
    Expired,
    FeeTooLow,
    InsufficientFunds,
    InvalidTransaction,
    TooMuchWork,
    WrongChain,
    WrongNonce,
)
from abci_app.forms import check_body_form
from abci_app.genesis import write_genesis
from abci_app.ledger import account_of, burn, params_of
from abci_app.params import Genesis, Params
from abci_app.parsed import ParsedTransaction, parse_transaction
from abci_app.rules import deals, phases, stake, validators
from abci_app.rules.handlers import HANDLERS
from abci_app.state import Branch, ReadableState
from abci_app.transactions import TxBody, check_signature, signature_record
from primitives.encoding import encode

PENDING_WINDOW: Final = 64
"""CheckTx sees committed nonces only, so it lets this many transactions of one account wait at a time."""
MAX_LOG_CHARACTERS: Final = 400


class Waiting(Protocol):
    """What waits in this node's mempool; see `abci_app.waiting`."""

    def add(self, sender: bytes, nonce: int, tx_hash: bytes) -> None: ...
    def may_stay(self, sender: bytes, nonce: int, tx_hash: bytes, *, next_nonce: int) -> bool: ...


class Known(Protocol):
    """Transactions whose form and signature are good; see `abci_app.known`."""

    def find(self, tx: bytes) -> ParsedTransaction | None: ...
    def add(self, parsed: ParsedTransaction) -> None: ...


class Unverified(msgspec.Struct, frozen=True, gc=False):
    """A transaction that may wait in the mempool if its signature is good."""

    parsed: ParsedTransaction
    record: bytes
    """What verifying takes: see `primitives.keys.verify_record`."""


def init_genesis(branch: Branch, genesis: Genesis) -> None:
    """Write the first state into an empty branch."""
    write_genesis(branch, genesis)


def begin_block(branch: Branch, block: BlockContext, evidence: Sequence[Evidence]) -> list[Event]:
    """Before the transactions: punish double signatures."""
    return stake.punish(branch, evidence, block)


def begin_check(
    state: ReadableState,
    tx: bytes,
    *,
    chain_id: str,
    height: int,
    recheck: bool,
    waiting: Waiting | None = None,
    known: Known | None = None,
) -> "Receipt | Unverified":
    """Whether `tx` may wait in the mempool: everything that costs little. Unverified when all depends on the signature.

    `height` is that of the next block. Nonces up to PENDING_WINDOW ahead of the committed one pass, since earlier
    transactions of the account may be waiting. `recheck`: form and signature were found good before and are skipped.
    `waiting`: what the mempool holds; at a recheck it ends the wait behind a nonce that never came.
    `known`: remembers what was found good, for whoever looks at the transaction next.
    """
    work = 0
    try:
        found = None if known is None else known.find(tx)
        parsed = found or parse_transaction(tx)
        is_good = recheck or found is not None
        body = parsed.body
        work = _check_body(parsed, params_of(state), chain_id, height, form_known_good=is_good)
        account = account_of(state, parsed.sender)
        if not account.nonce <= body.nonce < account.nonce + PENDING_WINDOW:
            raise WrongNonce(got=body.nonce, want=account.nonce)
        if account.balance < body.fee:
            raise InsufficientFunds(need=body.fee, have=account.balance)
        if not is_good:
            return Unverified(parsed, signature_record(parsed.envelope))
        if waiting is not None:
            _note_waiting(waiting, parsed, account.nonce, recheck=recheck)
    except InvalidTransaction as error:
        return _refusal(error, work, 0)
    return Receipt(code=CODE_OK, work_wanted=work)


def end_check(
    unverified: Unverified, *, good: bool, waiting: Waiting | None = None, known: Known | None = None
) -> Receipt:
    """The rest of `begin_check`, `good` being what `verify_record` says of the record."""
    parsed = unverified.parsed
    if not good:
        return _refusal(BadSignature(), parsed.work, 0)
    if known is not None:
        known.add(parsed)
    if waiting is not None:
        waiting.add(parsed.sender, parsed.body.nonce, parsed.hash)
    return Receipt(code=CODE_OK, work_wanted=parsed.work)


def execute_transaction(
    branch: Branch, tx: bytes, block: BlockContext, *, known: ParsedTransaction | None = None
) -> Receipt:
    """Apply `tx` to `branch`, whole or not at all; exactly one receipt whatever the bytes are.

    `known`: the parsed form of just these bytes, when their form and signature were found good before.
    """
    work = 0
    try:
        parsed = known or parse_transaction(tx)
        body, sender = parsed.body, parsed.sender
        work = _check_body(parsed, params_of(branch), block.chain_id, block.height, form_known_good=known is not None)
        _charge(branch, parsed, signature_known_good=known is not None)
    except InvalidTransaction as error:
        return _refusal(error, work, 0)
    own = Branch(branch)
    try:
        ids, events = _apply_messages(own, body, sender, block)
    except InvalidTransaction as error:
        return _refusal(error, work, work)
    own.merge_into(branch)
    return Receipt(code=CODE_OK, data=encode(ids), work_wanted=work, work_used=work, events=tuple(events))


def end_block(branch: Branch, block: BlockContext) -> EndOfBlock:
    """After the transactions: whatever is past its height, then stakes as CometBFT and the services must see them."""
    events: list[Event] = []
    stake.release_unbondings(branch, block)
    events.extend(phases.advance_jobs(branch, block))
    events.extend(deals.expire_deals(branch, block))
    updates, power_events = validators.update_powers(branch)
    validators.update_service_set(branch, block)
    return EndOfBlock(validator_updates=updates, events=tuple(events + power_events))


# --- steps --------------------------------------------------------------------------------------------------------
def _check_body(parsed: ParsedTransaction, params: Params, chain_id: str, height: int, *, form_known_good: bool) -> int:
    """Everything that needs no account; returns the work.

    Raises: WrongChain, MalformedTransaction, MalformedMessage, TooMuchWork, FeeTooLow, Expired.
    """
    body, work = parsed.body, parsed.work
    if body.chain_id != chain_id:
        raise WrongChain(got=body.chain_id[:64], want=chain_id)
    if not form_known_good:
        check_body_form(body)
    if work > params.max_block_work:
        raise TooMuchWork(work=work, limit=params.max_block_work)
    if body.fee < work * params.gas_price_micro:
        raise FeeTooLow(got=body.fee, want=work * params.gas_price_micro)
    if body.valid_until_height and height > body.valid_until_height:
        raise Expired(valid_until=body.valid_until_height, height=height)
    return work


def _note_waiting(waiting: Waiting, parsed: ParsedTransaction, next_nonce: int, *, recheck: bool) -> None:
    """Raises: WrongNonce when the transaction has waited long enough."""
    nonce = parsed.body.nonce
    if not recheck:
        waiting.add(parsed.sender, nonce, parsed.hash)
    elif not waiting.may_stay(parsed.sender, nonce, parsed.hash, next_nonce=next_nonce):
        raise WrongNonce(got=nonce, want=next_nonce)


def _charge(branch: Branch, parsed: ParsedTransaction, *, signature_known_good: bool) -> None:
    """Take the fee and count the nonce.

    Raises: WrongNonce, InsufficientFunds, BadSignature, with nothing written.
    """
    sender, body = parsed.sender, parsed.body
    account = account_of(branch, sender)
    if body.nonce != account.nonce:
        raise WrongNonce(got=body.nonce, want=account.nonce)
    if account.balance < body.fee:
        raise InsufficientFunds(need=body.fee, have=account.balance)
    if not signature_known_good:
        check_signature(parsed.envelope)
    charged = replace(account, nonce=account.nonce + 1, balance=account.balance - body.fee)
    tables.ACCOUNTS.put(branch, charged, sender)
    burn(branch, body.fee)


def _apply_messages(branch: Branch, body: TxBody, sender: bytes, block: BlockContext) -> tuple[list[int], list[Event]]:
    ids: list[int] = []
    events: list[Event] = []
    for message in body.messages:
        effect = HANDLERS[type(message)](branch, message, sender, block)
        ids.append(effect.created_id)
        events.extend(effect.events)
    return ids, events


def _refusal(error: InvalidTransaction, work_wanted: int, work_used: int) -> Receipt:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Receipt(code=error.code, log=text[:MAX_LOG_CHARACTERS], work_wanted=work_wanted, work_used=work_used)
