"""Transactions in parsed form: what depends on their bytes alone (decoding, form, signature)."""

import msgspec

from abci_app.forms import check_body_form
from abci_app.transactions import Transaction, TxBody, check_signature, decode_transaction, tx_hash
from abci_app.work import total_work


class ParsedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction that decodes, with what follows from its bytes."""

    raw: bytes
    envelope: Transaction
    body: TxBody
    sender: bytes
    work: int
    hash: bytes


def parse_transaction(tx: bytes) -> ParsedTransaction:
    """Decode; form and signature are not looked at.

    Raises: TransactionTooLarge, MalformedTransaction.
    """
    envelope, body = decode_transaction(tx)
    return ParsedTransaction(tx, envelope, body, envelope.sender, total_work(body.messages), tx_hash(tx))


def verify_transaction(tx: bytes) -> ParsedTransaction:
    """Decode, and check form and signature: all that can be said of the bytes alone.

    Raises: InvalidTransaction.
    """
    parsed = parse_transaction(tx)
    check_body_form(parsed.body)
    check_signature(parsed.envelope)
    return parsed
