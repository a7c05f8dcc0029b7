"""One record of the state with the proof that it is there, or is not, against the app hash of the next header."""

import asyncio
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from abci_app.proofs import KeyProof, check_key_proof
from abci_app.proofs import ProofError as BadProof
from abci_app.tables import KeyPart, Table
from node import rpc_types as rpc
from node.errors import ProofError
from node.light.client import LightClient, Verified
from node.light.errors import BlockMissing
from primitives.encoding import EncodingError, decode

if TYPE_CHECKING:
    from node.client import Client

R = TypeVar("R", bound=msgspec.Struct)

NEXT_BLOCK_S: Final = 15.0
"""How long the block after the state may take; nodes make one at least every second."""
RETRY_S: Final = 0.25


class Proved(msgspec.Struct, Generic[R], frozen=True):
    """A record as of the state after block `height`; None is a proven absence."""

    record: R | None
    height: int
    verified: Verified | None
    """The next block, whose header holds the state's hash; None where the node's own word was taken for it."""


async def prove(
    client: "Client", light: LightClient | None, table: Table[R], key_parts: tuple[KeyPart, ...]
) -> Proved[R]:
    """Ask, check the proof, and with `light` check the header too.

    Raises: ProofError.
    """
    key = table.key(*key_parts)
    answer: rpc.StateValue = await client.call("state_get", rpc.StateParams(key=key, prove=True), rpc.StateValue)
    if answer.proof is None:
        raise ProofError("the node gave no proof")
    if light is None:
        verified, app_hash = None, await _claimed_app_hash(client, answer.height + 1)
    else:
        verified = await _verify(light, answer.height + 1)
        app_hash = verified.app_hash
    try:
        proof = KeyProof.from_bytes(answer.proof)
        check_key_proof(app_hash, proof)
        if proof.key != key:
            raise ProofError("the proof is of another key")
        record = None if proof.value is None else decode(proof.value, table.record)
    except (BadProof, EncodingError) as error:
        raise ProofError(f"key {key.hex()} against block {answer.height + 1}: {error}") from error
    return Proved(record, answer.height, verified)


async def _claimed_app_hash(client: "Client", height: int) -> bytes:
    try:
        await client.wait_for_height(height, timeout_s=NEXT_BLOCK_S)
    except TimeoutError as error:
        raise ProofError(f"the node has no block {height} yet after {NEXT_BLOCK_S:g} s") from error
    header = await client.block(height)
    if header is None:
        raise ProofError(f"the node has no header of block {height}")
    return header.app_hash


async def _verify(light: LightClient, height: int) -> Verified:
    deadline = time.monotonic() + NEXT_BLOCK_S
    while True:
        try:
            verified = await light.verify(height)
        except BlockMissing:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_S)
        else:
            light.check_newest(verified)
            return verified
