"""Which record stands under which key. Every key of the state is made here.

A key is the table's name, a slash, and the parts: integers as 8 bytes big-endian (so that key order is number order),
byte strings of fixed length as they are.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec

from abci_app import records
from abci_app.params import Params
from abci_app.state import Branch, ReadableState
from primitives.blobs import ServiceSet
from primitives.encoding import OwnDecoder, encode

R = TypeVar("R", bound=msgspec.Struct)
KeyPart = int | bytes


def _part(part: KeyPart) -> bytes:
    return part.to_bytes(8, "big") if isinstance(part, int) else part


class Table(Generic[R]):
    """Records of one type under one prefix."""

    def __init__(self, name: str, record: type[R]) -> None:
        self.name = name
        self.record = record
        self.prefix: bytes = name.encode() + b"/"
        self._decode = OwnDecoder(record)

    def key(self, *parts: KeyPart) -> bytes:
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return self.prefix + parts[0]
        return self.prefix + b"".join(map(_part, parts))

    def get(self, state: ReadableState, *parts: KeyPart) -> R | None:
        value = state.get(self.key(*parts))
        return None if value is None else self._decode(value)

    def put(self, branch: Branch, record: R, *parts: KeyPart) -> None:
        branch.set(self.key(*parts), encode(record))

    def delete(self, branch: Branch, *parts: KeyPart) -> None:
        branch.delete(self.key(*parts))

    def iterate(self, state: ReadableState, *parts: KeyPart, start: bytes = b"") -> Iterator[tuple[bytes, R]]:
        """(key, record) under the first parts of the key, in key order."""
        for key, value in state.iterate(self.key(*parts), start=start):
            yield key, self._decode(value)


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """The value of an index entry: only its key counts."""


class IdRecord(msgspec.Struct, frozen=True, array_like=True):
    """What an idempotency key stands for."""

    id: int
    terms_hash: bytes = b""
    """Of the message that used the key first: a retry must say the same."""


class ConsensusKey(msgspec.Struct, frozen=True, array_like=True):
    """Whose consensus key it is, for ever: keys of removed validators are never free again."""

    operator: bytes
    key: bytes


class ServiceKey(msgspec.Struct, frozen=True, array_like=True):
    """Whose service key it is, for ever."""

    operator: bytes


class Height(msgspec.Struct, frozen=True, array_like=True):
    height: int


class Power(msgspec.Struct, frozen=True, array_like=True):
    """Voting power of a consensus key as CometBFT has last been told, above 0."""

    power: int


ACCOUNTS: Final = Table("account", records.Account)
VALIDATORS: Final = Table("validator", records.Validator)
ACTIVE_VALIDATORS: Final = Table("validator_active", Marker)
"""(2^63-1 - bond, operator) of validators that are not jailed and have the minimum bond: candidates for consensus,
those with the most stake first."""
CONSENSUS_KEYS: Final = Table("consensus_key", ConsensusKey)
"""CometBFT's address of the key (first 20 bytes of its SHA-256) -> operator and key."""
SERVICE_KEYS: Final = Table("service_key", ServiceKey)
"""service key -> operator that registered it first."""
POWERS: Final = Table("power", Power)
"""consensus key -> power in CometBFT's validator set."""
UNBONDINGS: Final = Table("unbonding", records.Unbonding)
UNBONDINGS_OF: Final = Table("unbonding_of", Marker)
"""(operator, release height, id) of stake that a validator takes out: what a double signature cuts."""
WORKERS: Final = Table("worker", records.Worker)
JOBS: Final = Table("job", records.Job)
JOB_KEYS: Final = Table("job_key", IdRecord)
"""(owner, idempotency key) -> job id."""
OPEN_JOBS: Final = Table("job_open", Marker)
"""(job id) of jobs that are open or closing."""
DUE_JOBS: Final = Table("job_due", Marker)
"""(height, job id): the end of the block at that height looks at the job: a deadline has passed, or something happened
that may end a phase early. An entry that has nothing to do any more is harmless."""
MEMBERS: Final = Table("member", records.Member)
ACTIVE_MEMBERS: Final = Table("member_active", Marker)
"""(job id, worker) of members that are expected in the next round."""
ROUNDS: Final = Table("round", records.Round)
SUBMISSIONS: Final = Table("submission", records.Submission)
SCORE_SHEETS: Final = Table("score", records.ScoreSheet)
SETTLEMENTS: Final = Table("settlement", records.Settlement)
BLOBS: Final = Table("blob", records.Blob)
"""(commitment, publisher, SHA-256 of the namespace). A commitment follows from the content alone, so anyone may copy a
public blob; a copier's record must not stand in the publisher's way. Look blobs up by the prefix of the commitment."""
SERVICE_SETS: Final = Table("service_set", ServiceSet)
SERVICE_SET_ENDS: Final = Table("service_set_end", Height)
"""version -> height at which a newer version was written; absent for the newest."""
DEALS: Final = Table("deal", records.Deal)
DEAL_KEYS: Final = Table("deal_key", IdRecord)
"""(owner, idempotency key) -> deal id."""
DEALS_BY_END: Final = Table("deal_end", Marker)
"""(end height, deal id) for pending and active deals: what expiry walks through."""
COUNTERS: Final = Table("counters", records.Counters)
PARAMS: Final = Table("params", Params)

TABLES: Final[dict[str, Table[msgspec.Struct]]] = {
    table.name: table  # type: ignore[misc]
    for table in (
        ACCOUNTS,
        VALIDATORS,
        ACTIVE_VALIDATORS,
        CONSENSUS_KEYS,
        SERVICE_KEYS,
        POWERS,
        UNBONDINGS,
        UNBONDINGS_OF,
        WORKERS,
        JOBS,
        JOB_KEYS,
        OPEN_JOBS,
        DUE_JOBS,
        MEMBERS,
        ACTIVE_MEMBERS,
        ROUNDS,
        SUBMISSIONS,
        SCORE_SHEETS,
        SETTLEMENTS,
        BLOBS,
        SERVICE_SETS,
        SERVICE_SET_ENDS,
        DEALS,
        DEAL_KEYS,
        DEALS_BY_END,
        COUNTERS,
        PARAMS,
    )
}
