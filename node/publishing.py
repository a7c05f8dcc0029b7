"""From a local update to the chain: the promise, the rows on the nodes, and the opening of the promise."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from abci_app.errors import BlobExists
from abci_app.messages import CommitUpdate, Message, PublishBlob, RevealUpdate
from abci_app.records import Round
from abci_app.rules.rounds import round_namespace
from da_layer.client import disperse
from da_layer.coding import encode_blob
from node.client import Client
from node.errors import NodeError, TransactionFailed
from node.intents import Intent
from primitives.blobs import BlobPromise, Certificate, ServiceSet, data_rows_for, row_counts
from training import LocalUpdate

DISPERSE_TIMEOUT_S: Final = 60.0


class NoServices(NodeError):
    """The chain names nobody who would hold the rows."""


class CannotCertify(NodeError):
    """The service set that a promised blob was cut for is gone, and the newest one asks for other rows."""


async def current_services(client: Client) -> ServiceSet:
    """The newest service set.

    Raises: NoServices.
    """
    services = await client.service_set()
    if services is None or not services.members:
        raise NoServices("no validator of this chain has registered a service; rows have nowhere to go")
    return services


async def make_intent(client: Client, round_: Round, update: LocalUpdate) -> Intent:
    """What to promise for this round; nothing is sent. The blob is cut for the newest service set."""
    assert client.key is not None
    services = await current_services(client)
    k, n = _rows_for(services)
    blob = await asyncio.to_thread(lambda: encode_blob(update.payload, k=k, n=n))
    return Intent(
        chain_id=await client.chain_id(),
        job_id=round_.job_id,
        round_index=round_.index,
        base_round=round_.base_round,
        worker=client.key.address,
        header=blob.header,
        set_version=services.version,
        payload=update.payload,
        salt=secrets.token_bytes(32),
        samples=update.samples,
        loss_micro=update.loss_micro,
    )


async def commit(client: Client, intent: Intent) -> None:
    """Send the promise. Raises: TransactionFailed, TransactionPending, NodeUnreachable."""
    message = CommitUpdate(job_id=intent.job_id, round_index=intent.round_index, commitment=intent.commitment)
    await client.send([message])


async def reveal(
    client: Client, intent: Intent, *, expiry_height: int, on_progress: Callable[[int, int], None] | None = None
) -> None:
    """Disperse the rows, to be kept until `expiry_height`, and open the promise in one transaction.

    Raises: da_layer.errors.DaError, TransactionFailed, TransactionPending, NodeUnreachable, NoServices, CannotCertify.
    """
    opening = RevealUpdate(
        job_id=intent.job_id,
        round_index=intent.round_index,
        base_round=intent.base_round,
        blob=intent.header.commitment,
        salt=intent.salt,
        samples=intent.samples,
        loss_micro=intent.loss_micro,
    )
    certificate = await publish(
        client,
        intent.payload,
        namespace=round_namespace(intent.job_id, intent.round_index),
        expiry_height=expiry_height,
        services=await _services_of(client, intent),
        on_progress=on_progress,
    )
    messages: list[Message] = [PublishBlob(certificate=certificate), opening]
    try:
        await client.send(messages)
    except TransactionFailed as error:
        if error.code != BlobExists.code:
            raise
        await client.send([opening])


async def _services_of(client: Client, intent: Intent) -> ServiceSet:
    """The set that the blob was cut for: the chain takes certificates of it through the longest round that it allows.

    Where the node has it no more, the newest one, if it asks for the same rows.

    Raises: NoServices, CannotCertify.
    """
    services = await client.service_set(intent.set_version)
    if services is not None:
        return services
    newest = await current_services(client)
    if _rows_for(newest) != (intent.header.k, intent.header.n):
        raise CannotCertify(
            f"the update of round {intent.round_index} was promised for service set {intent.set_version}, which is gone"
        )
    return newest


async def publish(
    client: Client,
    data: bytes,
    *,
    namespace: str,
    expiry_height: int,
    services: ServiceSet | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """Spread the rows of a blob over the nodes of a service set (the newest unless given); returns their certificate.

    Raises: da_layer.errors.DaError, NoServices, NodeUnreachable.
    """
    assert client.key is not None
    members = services or await current_services(client)
    k, n = _rows_for(members)
    blob = await asyncio.to_thread(lambda: encode_blob(data, k=k, n=n))
    promise = BlobPromise(
        chain_id=await client.chain_id(),
        header=blob.header,
        namespace=namespace,
        expiry_height=expiry_height,
        set_version=members.version,
        publisher=client.key.address,
    )
    return await disperse(
        client.session,
        blob,
        promise,
        client.key.sign(promise.digest),
        client.key.public_key,
        members,
        timeout_s=DISPERSE_TIMEOUT_S,
        on_progress=on_progress,
    )


def _rows_for(services: ServiceSet) -> tuple[int, int]:
    """(k, n) of a blob that this set holds."""
    k = data_rows_for(services.members)
    return k, sum(row_counts(k, services.members))
