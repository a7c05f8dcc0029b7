"""Parameters and results of every JSON-RPC method, shared by the server, its OpenRPC document and the client."""

from typing import Generic, Literal, TypeVar

import msgspec

from abci_app.messages import Address, Hash32

T = TypeVar("T")


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common shape: fields by name."""


# --- parameters ---------------------------------------------------------------------------------------------------
class NoParams(_Form, frozen=True):
    pass


class HeightParams(_Form, frozen=True):
    height: int | None = None
    """Newest when missing."""


class WaitHeightParams(_Form, frozen=True):
    at_least: int = 0
    """Answer as soon as this height is committed, or when `wait_s` have passed."""
    wait_s: float = 0.0
    """At most 20 seconds."""


class BroadcastParams(_Form, frozen=True):
    tx: bytes
    wait: bool = False
    """Wait for the commit, up to `timeout_s`; the hash comes back in any case."""
    timeout_s: float = 10.0


class TxParams(_Form, frozen=True):
    hash: Hash32
    wait_s: float = 0.0
    """Answer as soon as it is committed, or when these seconds (at most 20) have passed."""


class StateParams(_Form, frozen=True):
    key: bytes
    """Raw key of the state (abci_app.tables)."""
    prove: bool = False


class ProveParams(_Form, frozen=True):
    prove: bool = False


class AddressParams(_Form, frozen=True):
    address: Address
    prove: bool = False


class ServiceSetParams(_Form, frozen=True):
    version: int | None = None
    """Newest when missing."""
    prove: bool = False


class JobParams(_Form, frozen=True):
    job_id: int
    prove: bool = False


class RoundParams(_Form, frozen=True):
    job_id: int
    round_index: int | None = None
    """The open round, else the latest, when missing."""
    prove: bool = False


class SettlementParams(_Form, frozen=True):
    job_id: int
    round_index: int
    prove: bool = False


class BlobParams(_Form, frozen=True):
    commitment: Hash32
    publisher: Address | None = None
    namespace: str | None = None
    prove: bool = False


class DealParams(_Form, frozen=True):
    deal_id: int
    prove: bool = False


class ListParams(_Form, frozen=True):
    cursor: str | None = None
    """`next` of the page before; opaque."""
    limit: int = 100
    """1 to 500."""


class JobListParams(_Form, frozen=True):
    """Lists that belong to a job."""

    job_id: int
    cursor: str | None = None
    limit: int = 100


class RoundListParams(_Form, frozen=True):
    """Lists that belong to a round of a job."""

    job_id: int
    round_index: int
    cursor: str | None = None
    limit: int = 100


class DealListParams(_Form, frozen=True):
    owner: Address | None = None
    series: str | None = None
    provider: Address | None = None
    status: Literal["pending", "active", "expired", "deleted", "lapsed"] | None = None
    cursor: str | None = None
    limit: int = 100


class SubscribeParams(_Form, frozen=True):
    topic: Literal["blocks", "rounds", "settlements"]


class UnsubscribeParams(_Form, frozen=True):
    subscription: int


# --- results ------------------------------------------------------------------------------------------------------
class NodeStatus(_Form, frozen=True):
    chain_id: str
    version: str
    """Of outerstep."""
    engine_version: str
    moniker: str
    node_id: str
    """CometBFT's p2p id."""
    operator: Address
    service_key: bytes
    url: str
    """Where others reach this node's services."""
    height: int
    """Last committed height."""
    app_hash: bytes
    """Root of the state after that height."""
    block_time: str
    """Of that height; RFC 3339."""
    catching_up: bool
    num_peers: int
    voting_power: int


class HeightAnswer(_Form, frozen=True):
    height: int


class BlockInfo(_Form, frozen=True):
    height: int
    hash: Hash32
    time: str
    """RFC 3339."""
    proposer: str
    """CometBFT's address of the proposer, hex."""
    app_hash: bytes
    """Root of the state after the block before this one."""
    tx_hashes: tuple[Hash32, ...]


class BroadcastAnswer(_Form, frozen=True):
    hash: Hash32
    code: int
    """0: in the mempool (or in a block already); else why it was refused, as in abci_app.errors."""
    log: str
    height: int = 0
    """Of its block when it was waited for and committed; 0 otherwise."""


class TxStatus(_Form, frozen=True):
    hash: Hash32
    status: Literal["committed", "pending", "expired", "unknown"]
    """pending: accepted by this node and not yet in a block; expired: its last valid height has passed without it;
    unknown: never seen here."""
    height: int = 0
    index: int = 0
    """Position in its block."""
    code: int = 0
    log: str = ""
    ids: tuple[int, ...] = ()
    """One for each message: the id it created, or 0."""
    work_used: int = 0
    first_height: int = 0
    """Unless committed: the lowest block that this node has; above 1 it joined by state sync, and an older
    transaction may be in a block that it lacks. Else 0."""


class KeyProof(_Form, frozen=True):
    """Bytes that tie `key` to `value` (null: absent) under the app hash in the header of block `height + 1`."""

    key: bytes
    value: bytes | None
    proof: bytes


class StateValue(_Form, frozen=True):
    """Answer of state_get."""

    value: bytes | None
    height: int
    proof: bytes | None = None


class Answer(_Form, Generic[T], frozen=True):
    """One record as of `height`; null when there is none."""

    record: T | None
    height: int
    proof: KeyProof | None = None


class Page(_Form, Generic[T], frozen=True):
    """Part of a list; `next` is the cursor of what follows, or null at the end."""

    items: tuple[T, ...]
    next: str | None = None
    height: int = 0


class ValidatorInfo(_Form, frozen=True):
    """A member of CometBFT's validator set, and its operator where the state knows it."""

    consensus_key: bytes
    power: int
    operator: Address | None


class ValidatorsAnswer(_Form, frozen=True):
    height: int
    validators: tuple[ValidatorInfo, ...]


class Peer(_Form, frozen=True):
    node_id: str
    moniker: str
    address: str
    outbound: bool


class RoundEvent(_Form, frozen=True):
    job_id: int
    round_index: int
    phase: str
    status: str
    height: int


class SettlementEvent(_Form, frozen=True):
    job_id: int
    round_index: int
    height: int


class BlockEvent(_Form, frozen=True):
    height: int
    hash: Hash32
    time: str
    num_txs: int
