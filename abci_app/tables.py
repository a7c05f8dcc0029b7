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
from primitives.encoding import decode, encode

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

    def key(self, *parts: KeyPart) -> bytes:
        return self.prefix + b"".join(_part(part) for part in parts)

    def get(self, state: ReadableState, *parts: KeyPart) -> R | None:
        value = state.get(self.key(*parts))
        return None if value is None else decode(value, self.record)

    def put(self, branch: Branch, record: R, *parts: KeyPart) -> None:
        branch.set(self.key(*parts), encode(record))

    def delete(self, branch: Branch, *parts: KeyPart) -> None:
        branch.delete(self.key(*parts))

    def iterate(self, state: ReadableState, *parts: KeyPart, start: bytes = b"") -> Iterator[tuple[bytes, R]]:
        """(key, record) under the first parts of the key, in key order."""
        for key, value in state.iterate(self.key(*parts), start=start):
            yield key, decode(value, self.record)


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """The value of an index entry: only its key counts."""


class IdRecord(msgspec.Struct, frozen=True, array_like=True):
    id: int


ACCOUNTS: Final = Table("account", records.Account)
VALIDATORS: Final = Table("validator", records.Validator)
UNBONDINGS: Final = Table("unbonding", records.Unbonding)
WORKERS: Final = Table("worker", records.Worker)
JOBS: Final = Table("job", records.Job)
JOB_KEYS: Final = Table("job_key", IdRecord)
"""(owner, idempotency key) -> job id."""
OPEN_JOBS: Final = Table("job_open", Marker)
"""Jobs whose rounds the end of every block looks at: (job id)."""
MEMBERS: Final = Table("member", records.Member)
ROUNDS: Final = Table("round", records.Round)
SUBMISSIONS: Final = Table("submission", records.Submission)
SCORE_SHEETS: Final = Table("score", records.ScoreSheet)
SETTLEMENTS: Final = Table("settlement", records.Settlement)
BLOBS: Final = Table("blob", records.Blob)
SERVICE_SETS: Final = Table("service_set", ServiceSet)
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
        UNBONDINGS,
        WORKERS,
        JOBS,
        JOB_KEYS,
        OPEN_JOBS,
        MEMBERS,
        ROUNDS,
        SUBMISSIONS,
        SCORE_SHEETS,
        SETTLEMENTS,
        BLOBS,
        SERVICE_SETS,
        DEALS,
        DEAL_KEYS,
        DEALS_BY_END,
        COUNTERS,
        PARAMS,
    )
}
