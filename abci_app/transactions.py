"""The signed envelope around messages, and the digests that people and services sign.

Several messages in one envelope apply together or not at all.
"""

import hashlib
from typing import Final

import msgspec

from abci_app.errors import BadSignature, MalformedTransaction, TransactionTooLarge
from abci_app.messages import Message
from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import tagged_hash
from primitives.keys import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, PrivateKey, address_of, verify_record

MAX_TX_BYTES: Final = 256 * 1024
MAX_MESSAGES: Final = 100


class TxBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What the sender signs."""

    chain_id: str
    nonce: int
    """Count of this account's transactions so far: 0, 1, 2, … without gaps."""
    fee: int
    """In 10^-6 token; at least the work price of the messages."""
    valid_until_height: int
    """Last height of a block that may hold it; 0: no limit."""
    messages: tuple[Message, ...]


class Transaction(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A body with its signature. `body` stays as bytes, so that the signature covers just what was sent."""

    body: bytes
    public_key: bytes
    signature: bytes

    @property
    def sender(self) -> bytes:
        return address_of(self.public_key)


def body_digest(body: bytes) -> bytes:
    """What the sender signs, 32 bytes; the chain id stands in the body."""
    return tagged_hash("outerstep/tx/1", body)


def sign_transaction(body: TxBody, key: PrivateKey) -> bytes:
    """The bytes of a signed transaction, ready to broadcast."""
    encoded = encode(body)
    return encode(Transaction(body=encoded, public_key=key.public_key, signature=key.sign(body_digest(encoded))))


def tx_hash(tx: bytes) -> bytes:
    """The hash by which CometBFT and everybody else names a transaction: SHA-256 of its bytes."""
    return hashlib.sha256(tx).digest()


def decode_transaction(tx: bytes) -> tuple[Transaction, TxBody]:
    """Parse strictly, without looking at the signature.

    Raises: TransactionTooLarge, MalformedTransaction.
    """
    if len(tx) > MAX_TX_BYTES:
        raise TransactionTooLarge(size=len(tx), limit=MAX_TX_BYTES)
    try:
        envelope = decode(tx, Transaction)
        body = decode(envelope.body, TxBody)
    except EncodingError as error:
        raise MalformedTransaction(str(error)) from error
    if not 1 <= len(body.messages) <= MAX_MESSAGES:
        raise MalformedTransaction(f"{len(body.messages)} messages; 1 to {MAX_MESSAGES} are allowed")
    return envelope, body


def check_signature(envelope: Transaction) -> None:
    """Raises: BadSignature."""
    if not verify_record(signature_record(envelope)):
        raise BadSignature


def signature_record(envelope: Transaction) -> bytes:
    """What verifying the signature takes, in one piece of 128 bytes: see `primitives.keys.verify_record`.

    Raises: BadSignature when key or signature is not of its length.
    """
    if len(envelope.public_key) != PUBLIC_KEY_BYTES or len(envelope.signature) != SIGNATURE_BYTES:
        raise BadSignature
    return envelope.public_key + body_digest(envelope.body) + envelope.signature


def possession_digest(chain_id: str, operator: bytes) -> bytes:
    """What a validator's Ed25519 consensus key signs to show that the operator holds it."""
    return tagged_hash("outerstep/possession/1", encode([chain_id, operator]))


def service_possession_digest(chain_id: str, operator: bytes) -> bytes:
    """What a service key signs to show that the operator holds it; else anyone could take another's key for ever."""
    return tagged_hash("outerstep/service-possession/1", encode([chain_id, operator]))


def update_commitment(
    chain_id: str, job_id: int, round_index: int, worker: bytes, blob: bytes, salt: bytes, samples: int, loss_micro: int
) -> bytes:
    """The hiding commitment of CommitUpdate. Bound to its sender: a copied one cannot be opened by the copier."""
    return tagged_hash(
        "outerstep/update/1", encode([chain_id, job_id, round_index, worker, blob, salt, samples, loss_micro])
    )
