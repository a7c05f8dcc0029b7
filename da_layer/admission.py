"""Which promises a node lets in: signed by their publisher, honoured by the chain, with exactly this member's rows."""

from dataclasses import dataclass
from typing import Final, Protocol

from da_layer.wire import ErrorAnswer, PutRequest, SignedPromise
from primitives.amounts import MAX_AMOUNT
from primitives.blobs import (
    BlobPromise,
    ServiceMember,
    ServiceSet,
    assign_rows,
    check_header,
    check_namespace,
    row_counts,
)
from primitives.keys import address_of, verify_signature

MAX_HEIGHT: Final = MAX_AMOUNT
"""Heights are signed 64-bit integers, as in CometBFT."""


class DaChain(Protocol):
    """What a row server asks its chain. May raise ChainUnavailable."""

    async def may_publish(self, promise: BlobPromise) -> str | None:
        """None when the chain would take a certificate of this promise from its publisher, else the reason why not."""

    async def service_set(self, version: int) -> ServiceSet | None:
        """The set with that version, or None when the chain does not keep it (any more)."""

    def height(self) -> int:
        """Height of the last block."""


class Refused(Exception):
    """A request that gets an error answer with this HTTP status."""

    def __init__(self, status: int, error: str, detail: str, *, height: int = 0, retry_after_s: int = 0) -> None:
        super().__init__(f"{error}: {detail}")
        self.status = status
        self.answer = ErrorAnswer(error, detail, height)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a checked promise asks of this member."""

    member: ServiceMember
    indices: tuple[int, ...]


def check_signed_promise(signed: SignedPromise, commitment: bytes, *, chain_id: str, height: int) -> None:
    """Everything that the promise alone shows. Raises: Refused."""
    promise = signed.promise
    if promise.chain_id != chain_id:
        raise Refused(400, "wrong_chain", f"the promise is for chain {promise.chain_id[:64]!r}; this is {chain_id!r}")
    try:
        check_header(promise.header)
        check_namespace(promise.namespace)
    except ValueError as error:
        raise Refused(400, "bad_promise", str(error)) from error
    if promise.header.commitment != commitment:
        raise Refused(400, "wrong_commitment", "the promise is for another blob than the address names")
    if not height <= promise.expiry_height <= MAX_HEIGHT:
        raise Refused(400, "expired", f"the promise ends at height {promise.expiry_height}; the chain is at {height}")
    if not 0 <= promise.set_version <= MAX_HEIGHT:
        raise Refused(400, "bad_promise", f"service set version is {promise.set_version}")
    if address_of(signed.public_key) != promise.publisher:
        raise Refused(403, "wrong_publisher", "the public key is not that of the publisher whom the promise names")
    if not verify_signature(signed.public_key, promise.digest, signed.signature):
        raise Refused(403, "bad_signature", "the signature does not match the promise and the public key")


async def assignment(promise: BlobPromise, service_key: bytes, chain: DaChain) -> Admitted:
    """The member of the promise's service set that signs with `service_key`, and its rows. Raises: Refused."""
    members = await chain.service_set(promise.set_version)
    if members is None or not members.total_stake:
        raise Refused(409, "unknown_service_set", f"the chain does not know service set {promise.set_version}")
    header = promise.header
    if sum(row_counts(header.k, members.members)) != header.n:
        raise Refused(
            400, "wrong_row_count", f"k = {header.k}, n = {header.n} do not fit service set {members.version}"
        )
    assigned = assign_rows(header.commitment, header.k, members.members)
    for member, indices in zip(members.members, assigned, strict=True):
        if member.service_key == service_key:
            return Admitted(member, indices)
    raise Refused(409, "not_a_member", f"this node is not a member of service set {members.version}")


def check_row_set(request: PutRequest, indices: tuple[int, ...]) -> None:
    """Exactly the assigned rows, each once, of the right size; says nothing about their proofs. Raises: Refused."""
    got = sorted(row.index for row in request.rows)
    if got != list(indices):
        raise Refused(422, "wrong_rows", f"rows {got[:300]} were sent; this node holds rows {list(indices)}")
    row_size = request.promise.header.row_size
    for row in request.rows:
        if len(row.data) != row_size:
            raise Refused(422, "wrong_rows", f"row {row.index} has {len(row.data)} bytes; it should have {row_size}")


async def check_honoured(promise: BlobPromise, chain: DaChain) -> None:
    """Raises: Refused with the chain's reason."""
    reason = await chain.may_publish(promise)
    if reason is not None:
        raise Refused(403, "may_not_publish", reason)
