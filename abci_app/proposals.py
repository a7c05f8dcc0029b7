"""Which transactions a proposer puts into a block, and which proposed blocks are refused.

Both depend on the transactions, the committed state and the height alone. An honest proposer's block holds only
transactions that decode, no more work than `params.max_block_work`, no more bytes than allowed; a block that breaks one
of these can therefore never be an honest one and is REJECTed. Everything else is ACCEPTed: a transaction that decodes
and then fails costs its sender, not the block. FinalizeBlock gives one result for any bytes all the same, since two
thirds of the stake may decide on a block that we refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from abci_app import tables
from abci_app.errors import InvalidTransaction
from abci_app.known import KnownTransactions
from abci_app.ledger import params_of
from abci_app.params import Params
from abci_app.parsed import ParsedTransaction, parse_transaction
from abci_app.server.frames import encode_length
from abci_app.spending import most_spent
from abci_app.state import ReadableState


def size_in_block(tx: bytes) -> int:
    """Bytes that `tx` takes in a block: tag, length and the transaction (protobuf ``repeated bytes``)."""
    return 1 + len(encode_length(len(tx))) + len(tx)


@dataclass
class _Sender:
    """An account as the transactions chosen so far leave it at the least."""

    nonce: int
    balance: int


def choose_transactions(
    state: ReadableState,
    txs: Iterable[bytes],
    known: KnownTransactions,
    *,
    max_tx_bytes: int,
    chain_id: str,
    height: int,
) -> list[bytes]:
    """The transactions for a proposal, in their order: those that fit, are in nonce order and can pay their fee,
    whatever the sender's transactions before them spend.

    Signatures are not looked at: CheckTx has verified whatever the mempool hands over.
    """
    params = params_of(state)
    senders: dict[bytes, _Sender] = {}
    chosen: list[bytes] = []
    bytes_left, work_left = max_tx_bytes, params.max_block_work
    for tx in txs:
        size = size_in_block(tx)
        if size > bytes_left:
            continue
        try:
            parsed = known.find(tx) or parse_transaction(tx)
        except InvalidTransaction:
            continue
        if parsed.work > work_left or not _is_fresh(parsed, params, chain_id, height):
            continue
        if not _charge(state, senders, parsed, most_spent(parsed.body.messages, params, height)):
            continue
        chosen.append(tx)
        bytes_left -= size
        work_left -= parsed.work
    return chosen


def find_fault(
    state: ReadableState, txs: Sequence[bytes], known: KnownTransactions, *, max_block_bytes: int
) -> str | None:
    """Why no honest proposer can have made a block of `txs`, or None."""
    size = sum(size_in_block(tx) for tx in txs)
    if size > max_block_bytes:
        return f"the transactions take {size} bytes; a block may have {max_block_bytes}"
    work, limit = 0, params_of(state).max_block_work
    for index, tx in enumerate(txs):
        try:
            parsed = known.find(tx) or parse_transaction(tx)
        except InvalidTransaction as error:
            return f"transaction {index} does not decode: {error}"
        work += parsed.work
        if work > limit:
            return f"the block needs more than {limit} units of work"
    return None


def _is_fresh(parsed: ParsedTransaction, params: Params, chain_id: str, height: int) -> bool:
    body = parsed.body
    in_time = body.valid_until_height == 0 or height <= body.valid_until_height
    return in_time and body.chain_id == chain_id and body.fee >= parsed.work * params.gas_price_micro


def _charge(state: ReadableState, senders: dict[bytes, _Sender], parsed: ParsedTransaction, spent: int) -> bool:
    """Whether nonce and fee fit the sender as the transactions before left it; if so, count this one, which may take
    `spent` besides its fee."""
    address, body = parsed.sender, parsed.body
    sender = senders.get(address)
    if sender is None:
        account = tables.ACCOUNTS.get(state, address)
        if account is None:
            return False
        sender = senders[address] = _Sender(account.nonce, account.balance)
    if body.nonce != sender.nonce or body.fee > sender.balance:
        return False
    sender.nonce += 1
    sender.balance = max(0, sender.balance - body.fee - spent)
    return True
