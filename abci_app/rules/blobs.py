"""Certificates of data availability: what makes a blob final, and what its storage costs.

A record is kept per commitment, publisher and namespace. The commitment follows from the content alone, so a stranger
can have a public blob certified too; the stranger's record must not stand in the publisher's way.
"""

from typing import Final

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext, Event
from abci_app.errors import (
    BadAttestation,
    BadBlobExpiry,
    BadBlobHeader,
    BelowThreshold,
    BlobExists,
    NotPublisher,
    UnknownServiceSet,
    WrongChain,
)
from abci_app.ledger import burn, credit, debit, params_of
from abci_app.params import Params
from abci_app.records import Blob
from abci_app.rules.effect import Effect
from abci_app.rules.validators import may_be_named
from abci_app.state import Branch, ReadableState
from primitives.blobs import BlobHeader, BlobPromise, Certificate, ServiceMember, ServiceSet, data_rows_for, row_counts
from primitives.hashing import sha256
from primitives.keys import verify_signature

MIB: Final = 1024 * 1024


def publish_blob(branch: Branch, message: m.PublishBlob, sender: bytes, block: BlockContext) -> Effect:
    """Raises: WrongChain, NotPublisher, BlobExists, BadBlobExpiry, UnknownServiceSet, BadBlobHeader, BadAttestation,
    BelowThreshold, InsufficientFunds."""
    promise = message.certificate.promise
    if promise.chain_id != block.chain_id:
        raise WrongChain(got=promise.chain_id[:64], want=block.chain_id)
    if promise.publisher != sender:
        raise NotPublisher("the sender is not the publisher that the certificate names")
    _check_unknown(branch, promise, block)
    params = params_of(branch)
    _check_expiry(promise, params, block)
    service_set = _named_set(branch, promise.set_version, params, block)
    _check_rows(promise.header, service_set)
    attesters = _attesters(message.certificate, service_set)
    _need_two_thirds(attesters, service_set)
    lifetime = promise.expiry_height - block.height
    _pay(branch, sender, blob_price(promise.header.size, lifetime, params), attesters)
    _write(branch, promise, attesters, block)
    return Effect(events=(Event("blob", {"commitment": promise.header.commitment.hex()}),))


def blob_key(commitment: bytes, publisher: bytes, namespace: str) -> tuple[bytes, bytes, bytes]:
    """Key parts of a blob's record in `tables.BLOBS`."""
    return commitment, publisher, sha256(namespace.encode())


def blob_price(size: int, lifetime: int, params: Params) -> int:
    """What a blob of `size` bytes costs for `lifetime` blocks, 10^-6 token: begun MiB x blocks x price."""
    return -(-size // MIB) * lifetime * params.blob_price_per_mib_block


def _check_unknown(state: ReadableState, promise: BlobPromise, block: BlockContext) -> None:
    known = tables.BLOBS.get(state, *blob_key(promise.header.commitment, promise.publisher, promise.namespace))
    if known is not None and block.height <= known.expiry_height:
        raise BlobExists(f"this blob is certified already, until height {known.expiry_height}")


def _check_expiry(promise: BlobPromise, params: Params, block: BlockContext) -> None:
    last = block.height + params.max_blob_lifetime
    if not block.height < promise.expiry_height <= last:
        raise BadBlobExpiry(f"expiry height is {promise.expiry_height}; it should be {block.height + 1} to {last}")


def _named_set(state: ReadableState, version: int, params: Params, block: BlockContext) -> ServiceSet:
    """The set, if its members still have something at stake: until `unbonding_blocks` after it was replaced."""
    service_set = tables.SERVICE_SETS.get(state, version)
    ended = tables.SERVICE_SET_ENDS.get(state, version)
    if service_set is None or (ended is not None and not may_be_named(ended, params, block)):
        raise UnknownServiceSet(f"service set {version} is unknown or too old")
    return service_set


def _check_rows(header: BlobHeader, service_set: ServiceSet) -> None:
    k = data_rows_for(service_set.members)
    n = sum(row_counts(k, service_set.members))
    if (header.k, header.n) != (k, n):
        raise BadBlobHeader(f"{header.k} of {header.n} rows; for this service set it should be {k} of {n}")


def _attesters(certificate: Certificate, service_set: ServiceSet) -> list[ServiceMember]:
    """The members who signed; one bad entry spoils the certificate."""
    digest = certificate.promise.attestation_digest
    members = {member.operator: member for member in service_set.members}
    attesters: list[ServiceMember] = []
    for entry in certificate.attestations:
        member = members.get(entry.operator)
        if member is None:
            raise BadAttestation("an attestation is by nobody of the service set")
        attesters.append(member)
    for entry, member in zip(certificate.attestations, attesters, strict=True):
        if not verify_signature(member.service_key, digest, entry.signature):
            raise BadAttestation("an attestation's signature does not match the member's service key")
    return attesters


def _need_two_thirds(attesters: list[ServiceMember], service_set: ServiceSet) -> None:
    stake = sum(member.stake for member in attesters)
    if 3 * stake < 2 * service_set.total_stake:
        raise BelowThreshold(stake=stake, total=service_set.total_stake)


def _pay(branch: Branch, publisher: bytes, price: int, attesters: list[ServiceMember]) -> None:
    """Split the price among the attesters by stake, rounding down; the rest is burned."""
    debit(branch, publisher, price)
    stake = sum(member.stake for member in attesters)
    left = price
    for member in attesters:
        part = price * member.stake // stake
        credit(branch, member.operator, part)
        left -= part
    burn(branch, left)


def _write(branch: Branch, promise: BlobPromise, attesters: list[ServiceMember], block: BlockContext) -> None:
    blob = Blob(
        header=promise.header,
        namespace=promise.namespace,
        publisher=promise.publisher,
        certified_height=block.height,
        expiry_height=promise.expiry_height,
        set_version=promise.set_version,
        attesters=tuple(member.operator for member in attesters),
    )
    tables.BLOBS.put(branch, blob, *blob_key(promise.header.commitment, promise.publisher, promise.namespace))
