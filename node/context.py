"""What the methods of the JSON-RPC work with: one object per process of services."""

import base64
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from abci_app.tables import KeyPart, Table
from abci_app.transactions import decode_transaction
from node.chain import MAX_RANGE_ITEMS, ChainState, Engine
from node.config import NodeConfig
from node.errors import INVALID_PARAMS, RpcError
from node.follower import Follower
from node.init import NodeIdentity
from node.rpc_types import Answer, KeyProof, Page
from primitives.encoding import decode

R = TypeVar("R", bound=msgspec.Struct)

MAX_LIMIT: Final = 500
"""Most items of one page; a larger limit is answered with this many."""
MAX_ACCEPTED: Final = 20_000


@dataclass(slots=True)
class NodeContext:
    """The node as its JSON-RPC sees it."""

    chain_id: str
    config: NodeConfig
    identity: NodeIdentity
    engine: Engine
    state: ChainState
    follower: Follower
    usage: Callable[[], dict[str, int]]
    """Bytes that DA rows and files take on this node's disk."""
    accepted: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    """Transactions that this node's mempool took: hash to last valid height (0: no limit)."""

    def note_accepted(self, hash_: bytes, tx: bytes) -> None:
        """Remember that CheckTx let `tx` in, to tell pending from unknown ones."""
        _, body = decode_transaction(tx)
        self.accepted[hash_] = body.valid_until_height
        while len(self.accepted) > MAX_ACCEPTED:
            self.accepted.popitem(last=False)

    async def answer(self, table: Table[R], *parts: KeyPart, prove: bool) -> Answer[R]:
        """One record as every *_get method gives it."""
        key = table.key(*parts)
        stored = await self.state.read(key, prove=prove)
        record = None if stored.value is None else decode(stored.value, table.record)
        proof = None if stored.proof is None else KeyProof(key=key, value=stored.value, proof=stored.proof)
        return Answer(record=record, height=stored.height, proof=proof)

    async def page(
        self,
        table: Table[R],
        *parts: KeyPart,
        cursor: str | None,
        limit: int,
        keep: Callable[[R], bool] | None = None,
    ) -> Page[R]:
        """Records under the first parts of a key, in key order.

        With `keep` one call looks at no more than 1000 records, so a page may be short and still have a `next`.

        Raises: RpcError INVALID_PARAMS for a cursor that is not of this list or a limit below 1.
        """
        if limit < 1:
            raise RpcError(INVALID_PARAMS, f"limit is {limit}; it should be 1 to {MAX_LIMIT}")
        limit = min(limit, MAX_LIMIT)
        prefix = table.key(*parts)
        start = prefix if cursor is None else read_cursor(cursor, prefix)
        wanted = MAX_RANGE_ITEMS if keep else limit + 1
        items, height = await self.state.range(prefix, start=start, limit=wanted)
        found: list[R] = []
        for position, (key, value) in enumerate(items):
            if len(found) == limit:
                return Page(items=tuple(found), next=write_cursor(items[position][0]), height=height)
            record = decode(value, table.record)
            if keep is None or keep(record):
                found.append(record)
            last = key
        more = len(items) == wanted
        return Page(items=tuple(found), next=write_cursor(last + b"\x00") if more else None, height=height)


def write_cursor(key: bytes) -> str:
    """Where a list goes on, as text that callers need not understand."""
    return base64.urlsafe_b64encode(key).decode()


def read_cursor(cursor: str, prefix: bytes) -> bytes:
    """The key behind a cursor.

    Raises: RpcError INVALID_PARAMS when it is not of a list under `prefix`.
    """
    try:
        key = base64.urlsafe_b64decode(cursor.encode("ascii"))
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, "cursor is damaged; use `next` of the page before as it is") from error
    if not key.startswith(prefix) or len(key) > len(prefix) + 256:
        raise RpcError(INVALID_PARAMS, "cursor belongs to another list; use `next` of the page before as it is")
    return key
