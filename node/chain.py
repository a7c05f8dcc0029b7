"""What the services read of their own node's chain: CometBFT's RPC, and the committed state behind ABCI queries."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from abci_app.proofs import PROOF_TYPE
from abci_app.tables import KeyPart, Table
from node.errors import MEMPOOL_FULL, NOT_READY, UNREADABLE, EngineRefused, RpcError
from node.rpc_client import RpcConnection
from primitives.encoding import EncodingError, decode, encode

R = TypeVar("R", bound=msgspec.Struct)

MAX_RANGE_ITEMS: Final = 1000
"""Most items of one range query."""
NO_SUCH_HEIGHT: Final = ("must be less than or equal to", "is not available", "could not find validator set")
"""How CometBFT says that a height is not committed yet, or not held any more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A value of the state after block `height`, None when the key is absent; the proof only when asked for."""

    value: bytes | None
    height: int
    proof: bytes | None = None


class Engine:
    """CometBFT's RPC. All methods raise NodeUnreachable (not running) or EngineRefused (says no)."""

    def __init__(self, url: str, *, timeout_s: float = 10.0, session: aiohttp.ClientSession | None = None) -> None:
        self.url = url
        self._rpc = RpcConnection(url, timeout_s=timeout_s, session=session)

    @property
    def session(self) -> aiohttp.ClientSession:
        return self._rpc.session

    async def close(self) -> None:
        await self._rpc.close()

    async def call(self, method: str, **params: Any) -> Any:
        """Any method of CometBFT's RPC."""
        try:
            return await self._rpc.call(method, params)
        except RpcError as error:
            raise EngineRefused(method, error.message) from error

    async def committed_height(self) -> int:
        """The application's last committed height; what `status` says may be ahead of it."""
        answer = await self.call("abci_info")
        return int(answer["response"].get("last_block_height") or 0)

    async def first_height(self) -> int:
        """The lowest block that is held, or will be: 1, unless the node joined by state sync."""
        sync = (await self.call("status"))["sync_info"]
        return int(sync.get("earliest_block_height") or 0) or await self.committed_height() + 1

    async def query(self, path: str, data: bytes, *, prove: bool = False) -> Stored:
        """One ABCI query.

        Raises: RpcError NOT_READY when the application refuses it.
        """
        answer = (await self.call("abci_query", path=path, data=data.hex(), prove=prove))["response"]
        if answer.get("code"):
            raise RpcError(NOT_READY, f"the application refused the query: {answer.get('log')}")
        proof = None
        for operator in (answer.get("proofOps") or {}).get("ops") or ():
            if operator.get("type") == PROOF_TYPE:
                proof = base64.b64decode(operator["data"])
        value = base64.b64decode(answer.get("value") or "")
        return Stored(value=value or None, height=int(answer.get("height") or 0), proof=proof)

    async def broadcast(self, tx: bytes) -> tuple[int, str]:
        """(code, log) of CheckTx; 0 also when the mempool holds it already.

        Raises: RpcError MEMPOOL_FULL when it was dropped for want of room.
        """
        try:
            answer = await self.call("broadcast_tx_sync", tx=base64.b64encode(tx).decode())
        except EngineRefused as error:
            text = error.reason.lower()
            if "already exists in cache" in text:
                return 0, "in the mempool already"
            if "mempool is full" in text:
                raise RpcError(MEMPOOL_FULL, "the mempool is full; send the same transaction again later") from error
            raise
        return int(answer.get("code") or 0), str(answer.get("log") or "")

    async def block(self, height: int | None) -> dict[str, Any] | None:
        """`block` of CometBFT's RPC; None when there is no such block (yet, or any more)."""
        try:
            answer: dict[str, Any] = await self.call("block", **({} if height is None else {"height": str(height)}))
        except EngineRefused as error:
            if any(words in error.reason for words in NO_SUCH_HEIGHT):
                return None
            raise
        return answer if answer.get("block") else None

    async def validators(self, height: int | None) -> tuple[int, list[dict[str, Any]]] | None:
        """(height, the validator set's entries), put together from its pages; None when there is no such height."""
        wanted = {} if height is None else {"height": str(height)}
        found: list[dict[str, Any]] = []
        page, total = 1, 1
        while len(found) < total:
            try:
                answer = await self.call("validators", page=str(page), per_page="100", **wanted)
            except EngineRefused as error:
                if any(words in error.reason for words in NO_SUCH_HEIGHT):
                    return None
                raise
            if not answer["validators"]:
                raise RpcError(UNREADABLE, f"CometBFT gave {len(found)} of {total} validators")
            total, page = int(answer["total"]), page + 1
            found += answer["validators"]
            wanted = {"height": str(answer["block_height"])}
        return int(answer["block_height"]), found

    async def block_results(self, height: int) -> dict[str, Any]:
        answer: dict[str, Any] = await self.call("block_results", height=str(height))
        return answer

    async def tx(self, tx_hash: bytes) -> dict[str, Any] | None:
        """A transaction by CometBFT's index; None when it is not there."""
        try:
            answer: dict[str, Any] = await self.call("tx", hash=base64.b64encode(tx_hash).decode())
        except EngineRefused as error:
            if "not found" in error.reason:
                return None
            raise
        return answer


class ChainState:
    """The committed state, record by record."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(self, key: bytes, *, prove: bool = False) -> Stored:
        """One raw value."""
        return await self._engine.query("key", key, prove=prove)

    async def get(self, table: Table[R], *parts: KeyPart) -> R | None:
        """One record."""
        stored = await self.read(table.key(*parts))
        return None if stored.value is None else decode(stored.value, table.record)

    async def range(self, prefix: bytes, *, start: bytes = b"", limit: int) -> tuple[list[tuple[bytes, bytes]], int]:
        """(items, height): up to `limit` (at most 1000) items whose key begins with `prefix`, from `start` on."""
        stored = await self._engine.query("range", encode([prefix, start, limit]))
        try:
            items = decode(stored.value or b"\x90", list[tuple[bytes, bytes]])
        except EncodingError as error:
            raise RpcError(NOT_READY, f"the application answered a range in another form: {error}") from error
        return items, stored.height

    async def all(self, table: Table[R], *parts: KeyPart) -> list[R]:
        """Every record under the first parts of a key, in key order."""
        return [decode(value, table.record) for _, value in await self._items(table.key(*parts))]

    async def keys(self, table: Table[R], *parts: KeyPart) -> list[bytes]:
        """Every key under its first parts, in order."""
        return [key for key, _ in await self._items(table.key(*parts))]

    async def _items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        start, found = prefix, list[tuple[bytes, bytes]]()
        while True:
            items, _ = await self.range(prefix, start=start, limit=MAX_RANGE_ITEMS)
            found.extend(items)
            if len(items) < MAX_RANGE_ITEMS:
                return found
            start = items[-1][0] + b"\x00"


def from_base64(text: object) -> bytes:
    """Bytes out of CometBFT's JSON; null is empty.

    Raises: RpcError when it is not base64.
    """
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(UNREADABLE, f"CometBFT answered in another form: {error}") from error
