"""Spread a blob's rows over the members of a service set and collect their attestations into a certificate."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from aiohttp import ClientSession

from da_layer.coding import EncodedBlob, Row
from da_layer.errors import InvalidBlob, NotAttested
from da_layer.peers import NO_SERVICE, PeerError, Progress, blob_url, call, name_of
from da_layer.wire import SignedPromise, put_body
from primitives.blobs import (
    Attestation,
    BlobPromise,
    Certificate,
    ServiceMember,
    ServiceSet,
    assign_rows,
    row_counts,
)
from primitives.encoding import EncodingError, decode
from primitives.keys import verify_signature

MAX_ATTEMPTS: Final = 4
GRACE_S: Final = 5.0
"""How long members that have not attested yet may still take their rows once the certificate is complete."""
_FIRST_BACKOFF_S: Final = 0.2
_LONGEST_BACKOFF_S: Final = 5.0
_MAX_ATTESTATION_BYTES: Final = 1024

_log = structlog.get_logger()
_stragglers: set[asyncio.Task[None]] = set()
"""asyncio itself keeps only weak references to tasks."""


async def disperse(
    session: ClientSession,
    blob: EncodedBlob,
    promise: BlobPromise,
    signature: bytes,
    public_key: bytes,
    members: ServiceSet,
    *,
    timeout_s: float,
    on_progress: Progress | None = None,
) -> Certificate:
    """Send every member its rows; return once members with two thirds of the stake have attested.

    The others get GRACE_S more in the background, so that their rows are there too. `signature` is the publisher's
    over `promise.digest`. Memory: nothing beyond the blob's rows but buffers.

    Raises: InvalidBlob (promise, blob and members do not fit one another), NotAttested (names who refused and why).
    """
    _check_fit(blob, promise, members)
    signed = SignedPromise(promise, public_key, signature)
    deadline = asyncio.get_running_loop().time() + timeout_s
    assigned = assign_rows(blob.commitment, blob.header.k, members.members)
    offers = {
        asyncio.create_task(_offer(session, signed, blob, member, indices, deadline)): (member, len(indices))
        for member, indices in zip(members.members, assigned, strict=True)
        if member.stake > 0
    }
    try:
        certificate = await _collect(promise, members, offers, on_progress or (lambda done, total: None))
    except BaseException:
        await _stop(offers)
        raise
    _leave_to_finish(offers)
    return certificate


def _check_fit(blob: EncodedBlob, promise: BlobPromise, members: ServiceSet) -> None:
    if promise.header != blob.header:
        raise InvalidBlob("the promise is for another blob")
    if promise.set_version != members.version:
        raise InvalidBlob(f"the promise names service set {promise.set_version}; these are {members.version}")
    if not members.total_stake or sum(row_counts(blob.header.k, members.members)) != blob.header.n:
        raise InvalidBlob(f"k = {blob.header.k}, n = {blob.header.n} do not fit service set {members.version}")


async def _collect(
    promise: BlobPromise,
    members: ServiceSet,
    offers: dict[asyncio.Task[Attestation], tuple[ServiceMember, int]],
    on_progress: Progress,
) -> Certificate:
    total = members.total_stake
    attestations: list[Attestation] = []
    refusals: dict[str, str] = {}
    stake, rows, pending = 0, 0, set(offers)
    while 3 * stake < 2 * total:
        if 3 * (stake + sum(offers[task][0].stake for task in pending)) < 2 * total:
            raise NotAttested(stake=stake, total=total, refusals=refusals)
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            member, num_rows = offers[task]
            error = task.exception()
            if isinstance(error, PeerError):
                refusals[name_of(member)] = str(error)
                continue
            attestations.append(task.result())
            stake += member.stake
            rows += num_rows
            on_progress(rows, promise.header.n)
    return Certificate(promise, tuple(sorted(attestations, key=lambda word: word.operator)))


async def _offer(
    session: ClientSession,
    signed: SignedPromise,
    blob: EncodedBlob,
    member: ServiceMember,
    indices: Sequence[int],
    deadline: float,
) -> Attestation:
    """A member's checked attestation. Raises: PeerError with the last reason once trying again is no use."""
    if not member.url or not member.service_key:
        raise PeerError(NO_SERVICE, passing=False)
    body = put_body(signed, blob, indices)
    loop = asyncio.get_running_loop()
    attempt_s = (deadline - loop.time()) / 2
    for attempt in range(MAX_ATTEMPTS):
        try:
            time_left = max(0.001, min(attempt_s, deadline - loop.time()))
            return await _send_rows(session, signed.promise, member, body, time_left)
        except PeerError as error:
            pause = max(error.retry_after_s, _FIRST_BACKOFF_S * 2**attempt) * random.uniform(0.8, 1.2)
            pause = min(pause, _LONGEST_BACKOFF_S)
            if not error.passing or attempt + 1 == MAX_ATTEMPTS or loop.time() + pause >= deadline:
                raise
            await asyncio.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


async def _send_rows(
    session: ClientSession, promise: BlobPromise, member: ServiceMember, body: Sequence[Row], timeout_s: float
) -> Attestation:
    url = blob_url(member, promise.header.commitment)
    answer = await call(session, "PUT", url, timeout_s=timeout_s, max_bytes=_MAX_ATTESTATION_BYTES, body=body)
    try:
        word = decode(answer, Attestation)
    except EncodingError as error:
        raise PeerError(f"answered no attestation: {error}", passing=False) from error
    if word.operator != member.operator:
        raise PeerError("attested in another member's name", passing=False)
    if not verify_signature(member.service_key, promise.attestation_digest, word.signature):
        raise PeerError("the signature of its attestation is wrong", passing=False)
    return word


def _leave_to_finish(offers: Iterable[asyncio.Task[Attestation]]) -> None:
    """Give what is still under way its grace without waiting for it; nothing outlives GRACE_S."""
    straggler = asyncio.create_task(_grace(list(offers)))
    _stragglers.add(straggler)
    straggler.add_done_callback(_stragglers.discard)


async def _grace(offers: Sequence[asyncio.Task[Attestation]]) -> None:
    try:
        await asyncio.wait(offers, timeout=GRACE_S)
    finally:
        await _stop(offers)


async def _stop(offers: Iterable[asyncio.Task[Attestation]]) -> None:
    for task in offers:
        task.cancel()
    for outcome in await asyncio.gather(*offers, return_exceptions=True):
        if isinstance(outcome, PeerError):
            _log.debug("a member did not take its rows", reason=str(outcome))
