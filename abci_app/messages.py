"""Every message that a transaction can carry. Field order is the wire order (msgpack arrays, tag first).

Addresses are 20 bytes, hashes 32 bytes, amounts integers of 10^-6 token, times block heights. Form rules, work prices
and error codes of each message stand in docs/protocol.md, which a test holds against this module.
"""

from typing import Literal

import msgspec

from primitives.blobs import Certificate
from primitives.deals import Tier

Address = bytes
Hash32 = bytes


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=True, gc=False):
    """Common shape of all messages; the tag is given by each class."""


# --- accounts -----------------------------------------------------------------------------------------------------
class Transfer(_Message, frozen=True, tag="transfer"):
    """Move `amount` from the sender to `to` (which needs not exist yet)."""

    to: Address
    amount: int


# --- stake and services -------------------------------------------------------------------------------------------
class RegisterValidator(_Message, frozen=True, tag="register_validator"):
    """Make the sender the operator of a validator with `bond` at stake; it joins consensus two blocks later."""

    consensus_key: bytes
    """Ed25519 public key of CometBFT's priv_validator_key.json, 32 bytes."""
    possession_proof: bytes
    """Ed25519 signature by that key over `possession_digest(chain_id, operator)`, 64 bytes."""
    bond: int


class Bond(_Message, frozen=True, tag="bond"):
    """Add `amount` to the stake of the sender's validator."""

    amount: int


class Unbond(_Message, frozen=True, tag="unbond"):
    """Take `amount` off the stake of the sender's validator; paid out after the unbonding time, slashable till then."""

    amount: int


class RegisterService(_Message, frozen=True, tag="register_service"):
    """Say where the sender's validator serves DA rows and storage, and under which key it signs for them."""

    service_key: bytes
    """x-only secp256k1, 32 bytes."""
    possession_proof: bytes
    """BIP-340 signature by that key over `service_possession_digest(chain_id, operator)`, 64 bytes."""
    url: str
    """http://host:port or https://host:port, at most 128 characters."""


class RegisterWorker(_Message, frozen=True, tag="register_worker"):
    """Put up `bond` so that the sender may join training jobs."""

    bond: int


class RetireWorker(_Message, frozen=True, tag="retire_worker"):
    """Take the worker's bond back after the unbonding time. Refused while it is a member of an open job."""


# --- jobs and rounds ----------------------------------------------------------------------------------------------
class JobTerms(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What a training job is, fixed at its creation."""

    manifest: bytes
    """Canonical encoding of the training configuration (model, H, optimizers, compressor), at most 8 KiB.
    The chain stores and hashes it and never looks inside."""
    data_root: Hash32
    """Storage root of the data set."""
    data_size: int
    """Bytes of the data set."""
    genesis_root: Hash32
    """State root before the first round."""
    num_rounds: int
    """Rounds to settle; then the job is done."""
    min_workers: int
    max_workers: int
    reward_per_round: int
    """Shared equally by the round's paid workers."""
    max_samples: int
    """Most samples that a worker may report for one round."""
    train_blocks: int
    commit_blocks: int
    reveal_blocks: int
    score_blocks: int
    aggregate_blocks: int
    scorers: tuple[Address, ...]
    """Validators (operator addresses) whose scores count; sorted; empty: no score phase."""


class CreateJob(_Message, frozen=True, tag="create_job"):
    """Open a job and set its whole reward (num_rounds x reward_per_round) aside. `key` makes a retry harmless."""

    key: Hash32
    terms: JobTerms


class CancelJob(_Message, frozen=True, tag="cancel_job"):
    """Owner only: no new round opens; the round in progress still settles; the rest of the escrow goes back."""

    job_id: int


class JoinJob(_Message, frozen=True, tag="join_job"):
    """Take part from the next round on (or again, after being dropped). The worker names the genesis state it built."""

    job_id: int
    genesis_root: Hash32


class LeaveJob(_Message, frozen=True, tag="leave_job"):
    """Take no part after the current round."""

    job_id: int


class CommitUpdate(_Message, frozen=True, tag="commit_update"):
    """Promise one pseudo-gradient without showing it: `update_commitment(...)` of what will be revealed."""

    job_id: int
    round_index: int
    commitment: Hash32


class RevealUpdate(_Message, frozen=True, tag="reveal_update"):
    """Open the promise. The blob must be certified on chain already (same transaction is fine)."""

    job_id: int
    round_index: int
    base_round: int
    """The settled round whose state the update starts from; -1 for the genesis state."""
    blob: Hash32
    """Commitment of the certified blob."""
    salt: Hash32
    samples: int
    loss_micro: int
    """Mean training loss of the round in 10^-6 nats, as the worker says."""


class ScoreUpdates(_Message, frozen=True, tag="score_updates"):
    """A scorer's view of every revealed update: held-out loss improvement, 10^-6 nats, negative where it hurts."""

    job_id: int
    round_index: int
    scores: tuple[tuple[Address, int], ...]
    """(worker, score) for each revealed worker, sorted by worker."""


class AttestState(_Message, frozen=True, tag="attest_state"):
    """What the sender computed from the frozen set of blobs."""

    job_id: int
    round_index: int
    state_root: Hash32
    rejected: tuple[Address, ...]
    """Workers whose blob could not be used (does not decode, wrong shape, not finite), sorted."""


# --- data availability --------------------------------------------------------------------------------------------
class PublishBlob(_Message, frozen=True, tag="publish_blob"):
    """Record a certificate; the sender is the publisher and pays size x lifetime to those who attested."""

    certificate: Certificate


# --- storage deals ------------------------------------------------------------------------------------------------
class CreateDeal(_Message, frozen=True, tag="create_deal"):
    """Ask for `replicas` providers to hold a file for `duration` blocks after activation; the price is set aside.

    The same key with the same terms returns the deal that exists already and costs nothing but the fee.
    """

    key: Hash32
    root: Hash32
    size: int
    tier: Tier
    replicas: int
    duration: int
    series: str
    """Free label that lists and policies go by, such as ``job/1/checkpoints``; 0 to 64 characters of a-z 0-9 / - _ ."""


class ActivateDeal(_Message, frozen=True, tag="activate_deal"):
    """Show the receipt of every provider; from here on the deal's time runs. Anyone may send it."""

    deal_id: int
    receipts: tuple[tuple[Address, bytes], ...]
    """(operator, signature over receipt_digest), sorted by operator, one for each provider of the deal."""


class ExtendDeal(_Message, frozen=True, tag="extend_deal"):
    """Add `blocks` to a living deal; whoever sends it pays."""

    deal_id: int
    blocks: int


class DeleteDeal(_Message, frozen=True, tag="delete_deal"):
    """Owner only: end a deal now. Providers are paid for the time passed, the rest goes back. Also releases a
    temporary deal and calls a pending one off."""

    deal_id: int


Message = (
    Transfer
    | RegisterValidator
    | Bond
    | Unbond
    | RegisterService
    | RegisterWorker
    | RetireWorker
    | CreateJob
    | CancelJob
    | JoinJob
    | LeaveJob
    | CommitUpdate
    | RevealUpdate
    | ScoreUpdates
    | AttestState
    | PublishBlob
    | CreateDeal
    | ActivateDeal
    | ExtendDeal
    | DeleteDeal
)

Phase = Literal["train", "commit", "reveal", "score", "aggregate"]
