"""Everything that the chain's state holds, one struct per kind of record. `abci_app.tables` says under which keys."""

from typing import Literal

import msgspec

from abci_app.messages import Address, Hash32, JobTerms, Phase
from primitives.blobs import BlobHeader
from primitives.deals import Tier


class _Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Common shape of all records; change one with `msgspec.structs.replace`."""


class Account(_Record, frozen=True):
    balance: int = 0
    nonce: int = 0


class Validator(_Record, frozen=True):
    """Keyed by operator address."""

    operator: Address
    consensus_key: bytes
    bond: int
    jailed: bool = False
    """Set for good by a double signature: no power, no way back (unbonding what is left is allowed)."""
    service_key: bytes = b""
    url: str = ""


class Unbonding(_Record, frozen=True):
    """Stake on its way back; slashable until `release_height` has passed. Keyed by (release_height, id)."""

    id: int
    owner: Address
    amount: int
    release_height: int
    role: Literal["validator", "worker"]


class Worker(_Record, frozen=True):
    """Keyed by address."""

    address: Address
    bond: int
    open_jobs: int = 0


class Job(_Record, frozen=True):
    """Keyed by id (a counter, never reused)."""

    id: int
    owner: Address
    terms: JobTerms
    status: Literal["open", "closing", "done", "cancelled"]
    """closing: cancelled by its owner, the last round still runs. done/cancelled: over, escrow returned."""
    created_height: int
    escrow: int
    next_round: int
    """Index that the next round to open will get."""
    open_round: int
    """Index of the round in progress; -1: waiting for min_workers."""
    settled_rounds: int
    settled_round: int
    """Index of the last settled round; -1: none."""
    state_root: Hash32
    """State root after that round (the genesis root before any)."""
    void_rounds: int = 0
    """Void rounds in a row; at `max_void_rounds` the job is cancelled."""


class Member(_Record, frozen=True):
    """A worker's part in a job. Keyed by (job, worker)."""

    job_id: int
    worker: Address
    active: bool
    """Expected in the rounds that open from now on."""
    joined_height: int
    missed: int = 0
    """Rounds missed in a row; at `max_missed_rounds` the member turns inactive until it joins again."""
    earned: int = 0


class Round(_Record, frozen=True):
    """Keyed by (job, index); kept after settlement."""

    job_id: int
    index: int
    status: Literal["open", "settled", "void"]
    phase: Phase
    opened_height: int
    deadline: int
    """Last height at which messages of the current phase count; the phase ends when it has passed, or early once all
    who are expected have acted."""
    base_round: int
    """Settled round whose state the updates start from; -1: genesis."""
    base_root: Hash32
    expected: tuple[Address, ...]
    """Members at opening, sorted."""
    closed_height: int = 0
    void_reason: str = ""
    """Empty unless void: too_few_commits, too_few_reveals, too_few_included, no_scorers, no_quorum, too_few_usable."""
    included: tuple[Address, ...] = ()
    """The frozen set: workers whose blobs make the next state, sorted. Empty before the aggregate phase."""


class Submission(_Record, frozen=True):
    """One worker's path through one round. Keyed by (job, round, worker); written first by CommitUpdate."""

    job_id: int
    round_index: int
    worker: Address
    commitment: Hash32
    commit_height: int
    blob: Hash32 = b""
    """Empty until revealed."""
    samples: int = 0
    loss_micro: int = 0
    payload_bytes: int = 0
    """Size of the blob, as certified."""
    state_root: Hash32 = b""
    """Empty until attested."""
    rejected: tuple[Address, ...] = ()


class ScoreSheet(_Record, frozen=True):
    """One scorer's scores for one round, and what it attested. Keyed by (job, round, scorer)."""

    job_id: int
    round_index: int
    scorer: Address
    scores: tuple[tuple[Address, int], ...] = ()
    """Empty: attested without having scored."""
    state_root: Hash32 = b""
    """Empty until attested."""
    rejected: tuple[Address, ...] = ()


Verdict = Literal["paid", "absent", "no_reveal", "scored_out", "rejected", "disagreed"]
"""paid; never committed; committed but never revealed (slashed); negative median score; blob unusable; attested another
root than the settled one."""


class WorkerOutcome(_Record, frozen=True):
    """What a round meant for one expected worker."""

    worker: Address
    verdict: Verdict
    paid: int
    slashed: int
    payload_bytes: int
    loss_micro: int


class Settlement(_Record, frozen=True):
    """How a round ended well. Keyed by (job, round)."""

    job_id: int
    round_index: int
    height: int
    state_root: Hash32
    blobs: tuple[tuple[Address, Hash32], ...]
    """The frozen set that the aggregate is computed from: (worker, blob) of included workers, sorted by worker.
    Includes blobs that were rejected as unusable: whoever recomputes finds them so."""
    outcomes: tuple[WorkerOutcome, ...]
    """One for each expected worker, sorted by worker."""
    total_paid: int


class Blob(_Record, frozen=True):
    """A certified blob. Keyed by (commitment, publisher, SHA-256 of the namespace); kept after its rows are pruned."""

    header: BlobHeader
    namespace: str
    publisher: Address
    certified_height: int
    expiry_height: int
    set_version: int
    attesters: tuple[Address, ...]


class Deal(_Record, frozen=True):
    """Keyed by id (a counter, never reused)."""

    id: int
    owner: Address
    key: Hash32
    root: Hash32
    size: int
    tier: Tier
    series: str
    replicas: int
    duration: int
    providers: tuple[Address, ...]
    """Operators of the validators that hold it, sorted."""
    status: Literal["pending", "active", "expired", "deleted", "lapsed"]
    """lapsed: not activated in time, refunded."""
    escrow: int
    """What is still set aside for the providers."""
    price_per_block: int
    """For all replicas together."""
    created_height: int
    start_height: int = 0
    end_height: int = 0
    """Last height at which the file is served (while active); for a pending deal the last height for activation."""
    closed_height: int = 0
    """First height without the deal; 0 while its record says pending or active, which it may for some blocks more."""


class Counters(_Record, frozen=True):
    """Chain-wide numbers. One record."""

    next_job: int = 1
    next_deal: int = 1
    next_unbonding: int = 1
    set_version: int = 0
    """Version of the newest ServiceSet."""
    burned: int = 0
    supply: int = 0
    """Fixed in genesis. balances + bonds + unbonding + escrows + burned = supply after every block."""
