"""The typed client: the one way every other part speaks to the chain.

    async with Client("http://127.0.0.1:26602", key=key) as client:
        result = await client.send([Transfer(to=address, amount=5)])

Reads give records of abci_app.records, or None where there is none. Errors are those of node.errors.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import aiohttp
import msgspec

from abci_app import records
from abci_app.messages import Message
from abci_app.params import Params
from abci_app.tables import KeyPart, Table
from node import rpc_types as rpc
from node.errors import NodeUnreachable, RpcError
from node.jsonform import JsonFormError, from_json, to_json
from node.light.client import LightClient
from node.proving import Proved, prove
from node.rpc_client import RpcConnection
from node.rpc_types import BlockInfo, NodeStatus, Page, TxStatus
from node.sending import OnSigned, Sender, SignedTransaction, TxResult
from primitives.blobs import ServiceSet
from primitives.keys import PrivateKey

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
DealStatus = Literal["pending", "active", "expired", "deleted", "lapsed"]

POLL_S: Final = 10.0
RECONNECT_S: Final = 0.5

__all__ = ["BlockInfo", "Client", "NodeStatus", "Page", "SignedTransaction", "TxResult", "TxStatus"]


class Client:
    """One node's JSON-RPC, typed. `key` signs what `send` sends; `timeout_s` bounds each call.

    `light` (closed with this client) verifies the headers that `proved` goes by.
    """

    def __init__(
        self,
        url: str,
        *,
        key: PrivateKey | None = None,
        chain_id: str | None = None,
        timeout_s: float = 10.0,
        session: aiohttp.ClientSession | None = None,
        light: LightClient | None = None,
    ) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self.key = key
        self._chain_id = chain_id
        self._params: Params | None = None
        self._rpc = RpcConnection(f"{self.url}/rpc", timeout_s=timeout_s, session=session)
        self._sender = Sender(self, key) if key is not None else None
        self._light = light

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._rpc.close()
        if self._light is not None:
            await self._light.close()

    @property
    def has_answered(self) -> bool:
        """Whether the node has answered at least once."""
        return self._rpc.has_answered

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP session of this client, for DA and storage transfers beside it."""
        return self._rpc.session

    async def call(self, method: str, params: msgspec.Struct, result: Any, *, extra_s: float = 0.0) -> Any:
        """Any method by its name; `result` is the type of its answer (see node.rpc_types).

        Raises: RpcError, NodeUnreachable (also when the answer has another form than it should).
        """
        answer = await self._rpc.call(method, to_json(params), extra_s=extra_s)
        try:
            return from_json(answer, result)
        except JsonFormError as error:
            raise NodeUnreachable(self.url, f"{method} answered in another form ({error}); other version?") from error

    # --- chain ----------------------------------------------------------------------------------------------------
    async def node_status(self) -> NodeStatus:
        status: NodeStatus = await self.call("node_status", rpc.NoParams(), NodeStatus)
        return status

    async def chain_id(self) -> str:
        """Asked once from the node when it was not given."""
        if self._chain_id is None:
            self._chain_id = (await self.node_status()).chain_id
        return self._chain_id

    async def height(self) -> int:
        """The last committed height."""
        return await self._height_at_least(0, wait_s=0.0)

    async def wait_for_height(self, height: int, *, timeout_s: float | None = None) -> int:
        """Return the committed height as soon as it is at least `height`.

        Raises: TimeoutError after `timeout_s` (None: no limit).
        """
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    reached = await self._height_at_least(height, wait_s=POLL_S)
                except (NodeUnreachable, RpcError):
                    await asyncio.sleep(RECONNECT_S)
                    continue
                if reached >= height:
                    return reached

    async def blocks(self) -> AsyncIterator[int]:
        """Every new height, without gaps, for ever; waits through restarts of the node."""
        seen = await self.wait_for_height(0)
        while True:
            reached = await self.wait_for_height(seen + 1)
            for height in range(seen + 1, reached + 1):
                yield height
            seen = reached

    async def block(self, height: int | None = None) -> BlockInfo | None:
        """A block's header data and transaction hashes; None while there is no such block."""
        block: BlockInfo | None = await self.call("chain_getBlock", rpc.HeightParams(height=height), BlockInfo | None)
        return block

    async def engine_validators(self, height: int | None = None) -> rpc.ValidatorsAnswer | None:
        """CometBFT's validator set with voting powers; None while there is no such height."""
        answer: rpc.ValidatorsAnswer | None = await self.call(
            "chain_getValidators", rpc.HeightParams(height=height), rpc.ValidatorsAnswer | None
        )
        return answer

    async def _height_at_least(self, at_least: int, *, wait_s: float) -> int:
        params = rpc.WaitHeightParams(at_least=at_least, wait_s=wait_s)
        answer: rpc.HeightAnswer = await self.call("chain_getHeight", params, rpc.HeightAnswer, extra_s=wait_s)
        return answer.height

    # --- single records -------------------------------------------------------------------------------------------
    async def params(self) -> Params:
        """The chain's parameters (fixed in genesis, so asked once)."""
        if self._params is None:
            record = await self._record("params_get", rpc.ProveParams(), Params)
            if record is None:
                raise RpcError(0, "the node holds no parameters yet; has the chain made its first block?")
            self._params = record
        return self._params

    async def counters(self) -> records.Counters | None:
        return await self._record("counters_get", rpc.ProveParams(), records.Counters)

    async def account(self, address: bytes) -> records.Account:
        """An account that was never used is an empty one."""
        account, _ = await self.account_and_height(address)
        return account

    async def account_and_height(self, address: bytes) -> tuple[records.Account, int]:
        """An account, and the height of the state that it was read from."""
        answer: rpc.Answer[records.Account] = await self.call(
            "account_get", rpc.AddressParams(address=address), rpc.Answer[records.Account]
        )
        return answer.record or records.Account(), answer.height

    async def validator(self, operator: bytes) -> records.Validator | None:
        return await self._record("validator_get", rpc.AddressParams(address=operator), records.Validator)

    async def worker(self, address: bytes) -> records.Worker | None:
        return await self._record("worker_get", rpc.AddressParams(address=address), records.Worker)

    async def service_set(self, version: int | None = None) -> ServiceSet | None:
        """The newest set when no version is given."""
        return await self._record("service_set_get", rpc.ServiceSetParams(version=version), ServiceSet)

    async def job(self, job_id: int) -> records.Job | None:
        return await self._record("job_get", rpc.JobParams(job_id=job_id), records.Job)

    async def round(self, job_id: int, index: int | None = None) -> records.Round | None:
        """Without `index` the open round, else the latest."""
        params = rpc.RoundParams(job_id=job_id, round_index=index)
        return await self._record("round_get", params, records.Round)

    async def settlement(self, job_id: int, index: int) -> records.Settlement | None:
        params = rpc.SettlementParams(job_id=job_id, round_index=index)
        return await self._record("settlement_get", params, records.Settlement)

    async def blob(
        self, commitment: bytes, *, publisher: bytes | None = None, namespace: str | None = None
    ) -> records.Blob | None:
        """The record of one publisher and namespace, else of all of this commitment the one that lasts longest."""
        params = rpc.BlobParams(commitment=commitment, publisher=publisher, namespace=namespace)
        return await self._record("da_getBlob", params, records.Blob)

    async def deal(self, deal_id: int) -> records.Deal | None:
        return await self._record("storage_getDeal", rpc.DealParams(deal_id=deal_id), records.Deal)

    async def _record(self, method: str, params: msgspec.Struct, record: type[R]) -> R | None:
        answer: rpc.Answer[R] = await self.call(method, params, rpc.Answer[record])  # type: ignore[valid-type]
        return answer.record

    # --- lists ----------------------------------------------------------------------------------------------------
    async def validators(self) -> list[records.Validator]:
        """All validators of the state, bonded or jailed, by operator."""
        return await self._all("validator_list", {}, records.Validator)

    async def jobs(self, cursor: str | None = None, limit: int = 100) -> Page[records.Job]:
        return await self._page("job_list", {"cursor": cursor, "limit": limit}, records.Job)

    async def rounds(self, job_id: int, cursor: str | None = None, limit: int = 100) -> Page[records.Round]:
        return await self._page("round_list", {"job_id": job_id, "cursor": cursor, "limit": limit}, records.Round)

    async def settlements(self, job_id: int, cursor: str | None = None, limit: int = 100) -> Page[records.Settlement]:
        fields = {"job_id": job_id, "cursor": cursor, "limit": limit}
        return await self._page("settlement_list", fields, records.Settlement)

    async def members(self, job_id: int) -> list[records.Member]:
        """All of them, by address."""
        return await self._all("member_list", {"job_id": job_id}, records.Member)

    async def submissions(self, job_id: int, index: int) -> list[records.Submission]:
        """All of a round's, by worker."""
        return await self._all("submission_list", {"job_id": job_id, "round_index": index}, records.Submission)

    async def scores(self, job_id: int, index: int) -> list[records.ScoreSheet]:
        """All of a round's, by scorer."""
        return await self._all("score_list", {"job_id": job_id, "round_index": index}, records.ScoreSheet)

    async def deals(
        self,
        owner: bytes | None = None,
        series: str | None = None,
        provider: bytes | None = None,
        status: DealStatus | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[records.Deal]:
        """By id. A page may hold fewer than `limit`, even none, and still have a `next`."""
        params = rpc.DealListParams(
            owner=owner, series=series, provider=provider, status=status, cursor=cursor, limit=limit
        )
        page: Page[records.Deal] = await self.call("storage_listDeals", params, Page[records.Deal])
        return page

    async def every(self, fetch: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
        """All items of a list: ``await client.every(lambda cursor: client.jobs(cursor))``."""
        items: list[T] = []
        cursor: str | None = None
        while True:
            page = await fetch(cursor)
            items.extend(page.items)
            cursor = page.next
            if cursor is None:
                return items

    async def _page(self, method: str, fields: dict[str, Any], record: type[R]) -> Page[R]:
        answer = await self._rpc.call(method, fields)
        try:
            return from_json(answer, Page[record])  # type: ignore[valid-type]
        except JsonFormError as error:
            raise NodeUnreachable(self.url, f"{method} answered in another form ({error}); other version?") from error

    async def _all(self, method: str, fields: dict[str, Any], record: type[R]) -> list[R]:
        return await self.every(lambda cursor: self._page(method, {**fields, "cursor": cursor, "limit": 500}, record))

    # --- transactions ---------------------------------------------------------------------------------------------
    async def send(
        self,
        messages: Sequence[Message],
        *,
        wait: bool = True,
        timeout_s: float = 60.0,
        fee: int | None = None,
        on_signed: OnSigned | None = None,
    ) -> TxResult:
        """Sign the messages as one transaction with the next nonce and send it; with `wait` until it is in a block.

        Never applies twice: on lost answers and restarts only the very same bytes are sent again. `fee` (10^-6 token)
        is the least that the chain asks for unless given. `on_signed` sees the bytes before they are sent.

        Raises: TransactionFailed (refused), TransactionPending (no block within `timeout_s`), NodeUnreachable.
        """
        return await self._signing.send(messages, wait=wait, timeout_s=timeout_s, fee=fee, on_signed=on_signed)

    async def build(self, messages: Sequence[Message], *, fee: int | None = None) -> SignedTransaction:
        """Sign without sending, so that the bytes can be written down first; its nonce counts as taken."""
        return await self._signing.build(messages, fee=fee)

    async def submit(self, signed: SignedTransaction, *, wait: bool = True, timeout_s: float = 60.0) -> TxResult:
        """Send what `build` made, now or again after a restart; harmless when it is in a block already.

        Raises: as `send`; NonceUsed when another transaction took its place.
        """
        return await self._signing.submit(signed, wait=wait, timeout_s=timeout_s)

    async def broadcast(self, tx: bytes) -> rpc.BroadcastAnswer:
        """Hand signed bytes to the node's mempool, once; `code` says whether it took them."""
        answer: rpc.BroadcastAnswer = await self.call("tx_broadcast", rpc.BroadcastParams(tx=tx), rpc.BroadcastAnswer)
        return answer

    async def tx(self, tx_hash: bytes, *, wait_s: float = 0.0) -> TxStatus:
        """Where a transaction stands; with `wait_s` (at most 20) answers early only once it is committed."""
        params = rpc.TxParams(hash=tx_hash, wait_s=wait_s)
        status: TxStatus = await self.call("tx_get", params, TxStatus, extra_s=wait_s)
        return status

    @property
    def _signing(self) -> Sender:
        if self._sender is None:
            raise ValueError("this client has no key; give one: Client(url, key=…)")
        return self._sender

    # --- proofs and events ----------------------------------------------------------------------------------------
    async def proved(self, table: Table[R], *key_parts: KeyPart) -> R | None:
        """A record, or its absence, checked against the app hash in the header of the next block.

        With a light client (`light`) that header is verified by the validators' signatures. Without one it is the
        header that the asked node itself gives: this then shows only that the node's answers fit together.
        Raises: ProofError when node and header disagree; LightError (a ProofError) when the header is not verified.
        """
        return (await self.proved_answer(table, *key_parts)).record

    async def proved_answer(self, table: Table[R], *key_parts: KeyPart) -> Proved[R]:
        """As `proved`, with the height of the state and what the light client verified."""
        return await prove(self, self._light, table, key_parts)

    async def subscribe(self, topic: Literal["blocks", "rounds", "settlements"]) -> AsyncIterator[Any]:
        """Events over the WebSocket as they come: BlockEvent, RoundEvent or SettlementEvent of node.rpc_types.

        Ends when the connection does; read the state afterwards, since events may have been missed.
        Raises: NodeUnreachable.
        """
        form = {"blocks": rpc.BlockEvent, "rounds": rpc.RoundEvent, "settlements": rpc.SettlementEvent}[topic]
        request = {"jsonrpc": "2.0", "id": 1, "method": "subscribe", "params": {"topic": topic}}
        try:
            async with self.session.ws_connect(f"{self.url}/ws", heartbeat=20.0) as socket:
                await socket.send_json(request)
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        note = json.loads(message.data)
                        if note.get("method") == "subscription":
                            yield from_json(note["params"]["event"], form)
        except (aiohttp.ClientError, OSError) as error:
            raise NodeUnreachable(self.url, str(error) or type(error).__name__) from error
