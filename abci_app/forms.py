"""Form checks: what can be said of a message without the state. CheckTx runs them, and so does every block.

One table, FORMS. Every check raises MalformedMessage with the field that is wrong.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from abci_app import messages as m
from abci_app.errors import MalformedMessage, MalformedTransaction
from abci_app.transactions import TxBody
from primitives.amounts import MAX_AMOUNT
from primitives.blobs import Certificate, check_header, check_namespace

MAX_MANIFEST_BYTES: Final = 8192
MAX_URL_CHARACTERS: Final = 128
MAX_SERIES_CHARACTERS: Final = 64
MAX_ROUNDS: Final = 1_000_000
MAX_WORKERS: Final = 128
MAX_SCORERS: Final = 64
MAX_PHASE_BLOCKS: Final = 1_000_000
MAX_SAMPLES: Final = 2**40
MAX_LOSS_MICRO: Final = 10**12
"""A loss of 10^6 nats; also bounds scores, both ways."""
MAX_ATTESTATIONS: Final = 255
MAX_DEAL_PROVIDERS: Final = 255
MAX_REPLICAS: Final = 255

_LABEL = re.compile(r"[a-z0-9/_-]*")
_URL = re.compile(r"https?://(?:[A-Za-z0-9.-]{1,100}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")


def check_form(message: m.Message) -> None:
    """Check one message by itself.

    Raises: MalformedMessage.
    """
    FORMS[type(message)](message)


def check_body_form(body: TxBody) -> None:
    """Check everything in a transaction's body that needs no state but the chain id.

    Raises: MalformedTransaction, MalformedMessage.
    """
    for name in ("nonce", "fee", "valid_until_height"):
        if not 0 <= getattr(body, name) <= MAX_AMOUNT:
            raise MalformedTransaction(f"{name} should be an integer from 0 to {MAX_AMOUNT}")
    for message in body.messages:
        check_form(message)


def check_url(url: str) -> None:
    """``http://host:port`` or ``https://host:port``, nothing behind it.

    Raises: MalformedMessage.
    """
    match = _URL.fullmatch(url) if len(url) <= MAX_URL_CHARACTERS else None
    if match is None or not 1 <= int(match[1]) <= 65535:
        raise MalformedMessage("url should be http://host:port or https://host:port, at most 128 characters")


# --- fields -------------------------------------------------------------------------------------------------------
def _bytes(value: bytes, name: str, length: int) -> None:
    if type(value) is not bytes or len(value) != length:
        raise MalformedMessage(f"{name} should be {length} bytes")


def _address(value: bytes, name: str) -> None:
    _bytes(value, name, 20)


def _hash(value: bytes, name: str) -> None:
    _bytes(value, name, 32)


def _integer(value: int, name: str, lowest: int, highest: int) -> None:
    if type(value) is not int or not lowest <= value <= highest:
        raise MalformedMessage(f"{name} should be an integer from {lowest} to {highest}")


def _amount(value: int, name: str = "amount") -> None:
    _integer(value, name, 1, MAX_AMOUNT)


def _id(value: int, name: str) -> None:
    _integer(value, name, 1, MAX_AMOUNT)


def _addresses(values: Sequence[bytes], name: str, most: int) -> None:
    if len(values) > most:
        raise MalformedMessage(f"{name} has {len(values)} entries; at most {most} are allowed")
    for value in values:
        _address(value, name)
    if any(left >= right for left, right in pairwise(values)):
        raise MalformedMessage(f"{name} should be sorted, without duplicates")


def _label(value: str, name: str, shortest: int, longest: int) -> None:
    if not (shortest <= len(value) <= longest and _LABEL.fullmatch(value)):
        raise MalformedMessage(f"{name} should be {shortest} to {longest} characters of a-z 0-9 / - _")


# --- accounts, stake, services ------------------------------------------------------------------------------------
def _transfer(message: m.Transfer) -> None:
    _address(message.to, "to")
    _amount(message.amount)


def _register_validator(message: m.RegisterValidator) -> None:
    _bytes(message.consensus_key, "consensus_key", 32)
    _bytes(message.possession_proof, "possession_proof", 64)
    _amount(message.bond, "bond")


def _bond(message: m.Bond | m.Unbond) -> None:
    _amount(message.amount)


def _register_service(message: m.RegisterService) -> None:
    _bytes(message.service_key, "service_key", 32)
    _bytes(message.possession_proof, "possession_proof", 64)
    check_url(message.url)


def _register_worker(message: m.RegisterWorker) -> None:
    _amount(message.bond, "bond")


def _no_fields(message: m.RetireWorker) -> None:
    """A message without fields is in form as it stands."""


# --- jobs and rounds ----------------------------------------------------------------------------------------------
def _create_job(message: m.CreateJob) -> None:
    terms = message.terms
    _hash(message.key, "key")
    if not 1 <= len(terms.manifest) <= MAX_MANIFEST_BYTES:
        raise MalformedMessage(f"manifest should be 1 to {MAX_MANIFEST_BYTES} bytes")
    _hash(terms.data_root, "data_root")
    _integer(terms.data_size, "data_size", 0, MAX_AMOUNT)
    _hash(terms.genesis_root, "genesis_root")
    _integer(terms.num_rounds, "num_rounds", 1, MAX_ROUNDS)
    _integer(terms.max_workers, "max_workers", 1, MAX_WORKERS)
    _integer(terms.min_workers, "min_workers", 1, terms.max_workers)
    _amount(terms.reward_per_round, "reward_per_round")
    _integer(terms.max_samples, "max_samples", 1, MAX_SAMPLES)
    for name in ("train_blocks", "commit_blocks", "reveal_blocks", "aggregate_blocks"):
        _integer(getattr(terms, name), name, 1, MAX_PHASE_BLOCKS)
    _integer(terms.score_blocks, "score_blocks", 1 if terms.scorers else 0, MAX_PHASE_BLOCKS)
    _addresses(terms.scorers, "scorers", MAX_SCORERS)


def _cancel_job(message: m.CancelJob | m.LeaveJob) -> None:
    _id(message.job_id, "job_id")


def _join_job(message: m.JoinJob) -> None:
    _id(message.job_id, "job_id")
    _hash(message.genesis_root, "genesis_root")


def _round_of(message: m.CommitUpdate | m.RevealUpdate | m.ScoreUpdates | m.AttestState) -> None:
    _id(message.job_id, "job_id")
    _integer(message.round_index, "round_index", 0, MAX_AMOUNT)


def _commit_update(message: m.CommitUpdate) -> None:
    _round_of(message)
    _hash(message.commitment, "commitment")


def _reveal_update(message: m.RevealUpdate) -> None:
    _round_of(message)
    _integer(message.base_round, "base_round", -1, MAX_AMOUNT)
    _hash(message.blob, "blob")
    _hash(message.salt, "salt")
    _integer(message.samples, "samples", 1, MAX_SAMPLES)
    _integer(message.loss_micro, "loss_micro", 0, MAX_LOSS_MICRO)


def _score_updates(message: m.ScoreUpdates) -> None:
    _round_of(message)
    _addresses([worker for worker, _ in message.scores], "scores", MAX_WORKERS)
    for _, score in message.scores:
        _integer(score, "scores", -MAX_LOSS_MICRO, MAX_LOSS_MICRO)


def _attest_state(message: m.AttestState) -> None:
    _round_of(message)
    _hash(message.state_root, "state_root")
    _addresses(message.rejected, "rejected", MAX_WORKERS)


# --- data availability --------------------------------------------------------------------------------------------
def _publish_blob(message: m.PublishBlob) -> None:
    certificate: Certificate = message.certificate
    promise = certificate.promise
    try:
        check_header(promise.header)
        check_namespace(promise.namespace)
    except ValueError as error:
        raise MalformedMessage(str(error)) from error
    _integer(promise.expiry_height, "expiry_height", 1, MAX_AMOUNT)
    _integer(promise.set_version, "set_version", 1, MAX_AMOUNT)
    _address(promise.publisher, "publisher")
    _addresses([entry.operator for entry in certificate.attestations], "attestations", MAX_ATTESTATIONS)
    for entry in certificate.attestations:
        _bytes(entry.signature, "attestations", 64)


# --- storage deals ------------------------------------------------------------------------------------------------
def _create_deal(message: m.CreateDeal) -> None:
    _hash(message.key, "key")
    _hash(message.root, "root")
    _integer(message.size, "size", 0, MAX_AMOUNT)
    _integer(message.replicas, "replicas", 1, MAX_REPLICAS)
    _integer(message.duration, "duration", 1, MAX_AMOUNT)
    _label(message.series, "series", 0, MAX_SERIES_CHARACTERS)


def _activate_deal(message: m.ActivateDeal) -> None:
    _id(message.deal_id, "deal_id")
    _addresses([operator for operator, _ in message.receipts], "receipts", MAX_DEAL_PROVIDERS)
    for _, signature in message.receipts:
        _bytes(signature, "receipts", 64)


def _extend_deal(message: m.ExtendDeal) -> None:
    _id(message.deal_id, "deal_id")
    _integer(message.blocks, "blocks", 1, MAX_AMOUNT)


def _delete_deal(message: m.DeleteDeal) -> None:
    _id(message.deal_id, "deal_id")


FORMS: Final[dict[type[m.Message], Callable[..., None]]] = {
    m.Transfer: _transfer,
    m.RegisterValidator: _register_validator,
    m.Bond: _bond,
    m.Unbond: _bond,
    m.RegisterService: _register_service,
    m.RegisterWorker: _register_worker,
    m.RetireWorker: _no_fields,
    m.CreateJob: _create_job,
    m.CancelJob: _cancel_job,
    m.JoinJob: _join_job,
    m.LeaveJob: _cancel_job,
    m.CommitUpdate: _commit_update,
    m.RevealUpdate: _reveal_update,
    m.ScoreUpdates: _score_updates,
    m.AttestState: _attest_state,
    m.PublishBlob: _publish_blob,
    m.CreateDeal: _create_deal,
    m.ActivateDeal: _activate_deal,
    m.ExtendDeal: _extend_deal,
    m.DeleteDeal: _delete_deal,
}
"""The form check of each type of message."""
