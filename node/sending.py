"""Getting a transaction into a block exactly once, whatever the node or the network does in between.

Rules: the bytes are signed once and only these bytes are sent again; messages are signed anew only when the earlier
bytes can never apply any more (their nonce is used up by another transaction). Nonces are counted here, so several
sends may be under way at once.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from abci_app.errors import InvalidTransaction, WrongNonce
from abci_app.forms import check_form
from abci_app.messages import Message, Transfer
from abci_app.transactions import TxBody, sign_transaction, tx_hash
from abci_app.work import minimum_fee
from node import errors
from node.errors import FateUnknown, NodeUnreachable, NonceUsed, RpcError, TransactionFailed, TransactionPending
from node.rpc_types import TxStatus
from primitives.keys import PrivateKey

if TYPE_CHECKING:
    from node.client import Client

VALID_BLOCKS: Final = 200
"""How many blocks ahead a transaction stays valid."""
HEIGHT_KEPT_S: Final = 1.0
RESEND_S: Final = 2.0
RETRY_S: Final = 0.3
INDEX_S: Final = 20.0
MAX_SIGNINGS: Final = 5
PASSING: Final = (errors.NOT_READY, errors.MEMPOOL_FULL, errors.RATE_LIMITED)
"""Errors that go away by themselves."""


@dataclass(frozen=True, slots=True)
class SignedTransaction:
    """Ready to send; write it down first where a crash must not lose track of it."""

    data: bytes
    hash: bytes
    nonce: int
    valid_until_height: int


OnSigned = Callable[[SignedTransaction], None]
"""Called with the bytes before they are sent, to write them down; again when they have to be signed anew."""


@dataclass(frozen=True, slots=True)
class TxResult:
    """Of a transaction in a block (or, when not waited for, in the mempool: `height` is 0 and `ids` empty)."""

    hash: bytes
    height: int
    code: int
    log: str
    ids: tuple[int, ...]


def is_final(status: TxStatus) -> bool:
    """Whether a transaction has had its effect. One with a wrong nonce in a block has not: it may come again."""
    return status.status == "committed" and status.code != WrongNonce.code


def _check_forms(messages: Sequence[Message]) -> None:
    for message in messages:
        try:
            check_form(message)
        except InvalidTransaction as error:
            raise TransactionFailed(error.code, f"{type(error).__name__}: {error}") from error


class Sender:
    """Signs and sends for one key. Safe for concurrent use within one event loop."""

    def __init__(self, client: "Client", key: PrivateKey) -> None:
        self._client = client
        self._key = key
        self._lock = asyncio.Lock()
        self._next_nonce: int | None = None
        self._in_flight: dict[int, SignedTransaction] = {}
        self._given_back: set[int] = set()
        """Nonces below one in flight whose transaction was refused."""
        self._height = 0
        self._height_read = -math.inf

    async def build(self, messages: Sequence[Message], *, fee: int | None = None) -> SignedTransaction:
        """Sign with the next nonce, without sending. The nonce counts as taken."""
        async with self._lock:
            signed = await self._sign(messages, fee)
            self._take(signed)
            return signed

    async def send(
        self,
        messages: Sequence[Message],
        *,
        wait: bool,
        timeout_s: float,
        fee: int | None,
        on_signed: OnSigned | None = None,
    ) -> TxResult:
        """Sign and send; see `Client.send`."""
        deadline = time.monotonic() + timeout_s
        for _ in range(MAX_SIGNINGS):
            async with self._lock:
                signed = await self._sign_patiently(messages, fee, deadline)
                accepted = False
                try:
                    if on_signed is not None:
                        on_signed(signed)
                    accepted = await self._broadcast(signed, deadline)
                finally:
                    if accepted:
                        self._take(signed)
                    else:
                        self._next_nonce = None
            if accepted:
                if not wait:
                    return TxResult(hash=signed.hash, height=0, code=0, log="", ids=())
                result = await self._wait(signed, deadline)
                if result is not None:
                    return result
        raise TransactionFailed(WrongNonce.code, "others keep using this account's nonces")

    async def submit(self, signed: SignedTransaction, *, wait: bool, timeout_s: float) -> TxResult:
        """Send these very bytes (again); see `Client.submit`."""
        deadline = time.monotonic() + timeout_s
        try:
            accepted = await self._broadcast(signed, deadline)
        except TransactionFailed as error:
            self._give_back(signed)
            if error.code == WrongNonce.code:  # too far ahead for this node, which is behind
                raise TransactionPending(signed.hash) from error
            raise
        if not accepted:
            self._forget(signed)
            raise NonceUsed(signed.hash)
        self._in_flight[signed.nonce] = signed
        if not wait:
            return TxResult(hash=signed.hash, height=0, code=0, log="", ids=())
        result = await self._wait(signed, deadline)
        if result is None:
            raise NonceUsed(signed.hash)
        return result

    def _take(self, signed: SignedTransaction) -> None:
        self._in_flight[signed.nonce] = signed
        self._given_back.discard(signed.nonce)
        self._next_nonce = max(self._next_nonce or 0, signed.nonce + 1)

    def _give_back(self, signed: SignedTransaction) -> None:
        """Refused before any block: the next one signed takes its nonce, and till then later ones wait for it."""
        self._forget(signed)
        if any(nonce > signed.nonce for nonce in self._in_flight):
            self._given_back.add(signed.nonce)

    async def _sign_patiently(self, messages: Sequence[Message], fee: int | None, deadline: float) -> SignedTransaction:
        """As `_sign`, through a restart of the node; a node that has never answered is given up at once."""
        while True:
            try:
                return await self._sign(messages, fee)
            except NodeUnreachable:
                if not self._client.has_answered or time.monotonic() + RETRY_S >= deadline:
                    raise
            except RpcError as error:
                if error.code not in PASSING or time.monotonic() + RETRY_S >= deadline:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _sign(self, messages: Sequence[Message], fee: int | None) -> SignedTransaction:
        """With the next nonce.

        Raises: TransactionFailed for a message that no state would take, NodeUnreachable, RpcError.
        """
        _check_forms(messages)
        if self._next_nonce is None:
            account = await self._client.account(self._key.address)
            self._in_flight = {n: signed for n, signed in self._in_flight.items() if n >= account.nonce}
            nonce = account.nonce
            while nonce in self._in_flight:
                nonce += 1
            self._next_nonce = nonce
        return await self._sign_at(self._next_nonce, messages, fee)

    async def _sign_at(self, nonce: int, messages: Sequence[Message], fee: int | None) -> SignedTransaction:
        params = await self._client.params()
        height = await self._recent_height()
        self._in_flight = {n: sent for n, sent in self._in_flight.items() if sent.valid_until_height >= height}
        valid_until = height + VALID_BLOCKS
        body = TxBody(
            chain_id=await self._client.chain_id(),
            nonce=nonce,
            fee=minimum_fee(messages, params) if fee is None else fee,
            valid_until_height=valid_until,
            messages=tuple(messages),
        )
        data = sign_transaction(body, self._key)
        return SignedTransaction(data=data, hash=tx_hash(data), nonce=nonce, valid_until_height=valid_until)

    async def _recent_height(self) -> int:
        """The height of at most HEIGHT_KEPT_S ago: near enough for the last height of a transaction."""
        if time.monotonic() - self._height_read > HEIGHT_KEPT_S:
            self._height = await self._client.height()
            self._height_read = time.monotonic()
        return self._height

    async def _broadcast(self, signed: SignedTransaction, deadline: float) -> bool:
        """Until the node takes the bytes. False: their nonce is used up by another transaction.

        Raises: TransactionFailed when the rules refuse them, NodeUnreachable or RpcError when time runs out.
        """
        while True:
            problem: Exception
            try:
                answer = await self._client.broadcast(signed.data)
                if answer.code == 0:
                    return True
                fate = await self._fate(signed)
                if fate is not None:
                    return is_final(fate)
                if answer.code != WrongNonce.code:
                    raise TransactionFailed(answer.code, answer.log, tx_hash=signed.hash)
                await self._resend_earlier(signed)
                problem = TransactionFailed(answer.code, answer.log, tx_hash=signed.hash)
            except NodeUnreachable as error:
                problem = error
            except RpcError as error:
                if error.code not in PASSING:
                    raise
                problem = error
            if time.monotonic() + RETRY_S >= deadline:
                raise problem
            await asyncio.sleep(RETRY_S)

    async def _resend_earlier(self, signed: SignedTransaction) -> None:
        """Close the gap before `signed`: the node may have dropped what was sent before it, or refused it for good."""
        earlier = sorted(nonce for nonce in {*self._in_flight, *self._given_back} if nonce < signed.nonce)
        if not earlier:
            return
        committed = (await self._client.account(self._key.address)).nonce
        self._given_back = {nonce for nonce in self._given_back if nonce >= committed}
        for nonce in earlier:
            if nonce >= committed:
                sent = self._in_flight.get(nonce) or await self._fill(nonce)
                await self._client.broadcast(sent.data)

    async def _fill(self, nonce: int) -> SignedTransaction:
        """Use up a nonce that was given back below one in flight: a millionth of a token to oneself."""
        filler = await self._sign_at(nonce, [Transfer(to=self._key.address, amount=1)], None)
        self._in_flight[nonce] = filler
        self._given_back.discard(nonce)
        return filler

    async def _fate(self, signed: SignedTransaction) -> TxStatus | None:
        """How a transaction ended whose nonce is used up: its result, or `unknown` when another one took its place.
        None while its nonce is free.

        The account may be read at a newer block than the node has indexed yet, so the index is waited for first:
        otherwise our own transaction would look like a stranger's.

        Raises: FateUnknown when the node has joined by state sync since `signed` was signed.
        """
        account, height = await self._client.account_and_height(self._key.address)
        if account.nonce <= signed.nonce:
            return None
        try:
            await self._client.wait_for_height(height, timeout_s=INDEX_S)
        except TimeoutError as error:
            raise NodeUnreachable(self._client.url, f"block {height} is not indexed after {INDEX_S:g} s") from error
        status = await self._client.tx(signed.hash)
        if is_final(status):
            return status
        if status.first_height > max(1, signed.valid_until_height - VALID_BLOCKS + 1):
            raise FateUnknown(signed.hash, status.first_height)
        return TxStatus(hash=signed.hash, status="unknown")

    async def _wait(self, signed: SignedTransaction, deadline: float) -> TxResult | None:
        """The result once it is in a block; None when another transaction used the nonce."""
        while True:
            remaining = deadline - time.monotonic()
            try:
                height = await self._client.height()
                status = await self._client.tx(signed.hash, wait_s=max(0.0, min(RESEND_S, remaining)))
                fate = status if is_final(status) else await self._fate(signed)
                if fate is not None and is_final(fate):
                    return self._finish(signed, fate)
                if fate is not None:
                    self._forget(signed)
                    return None
                if height > signed.valid_until_height:
                    self._forget(signed)
                    log = f"not in a block up to its last valid height {signed.valid_until_height}"
                    raise TransactionFailed(errors.NOT_INCLUDED, log, tx_hash=signed.hash)
                if remaining > 0:
                    await self._send_again(signed)
                    await asyncio.sleep(RETRY_S if status.status == "committed" else 0)
            except (NodeUnreachable, RpcError):
                if remaining > 0:
                    await asyncio.sleep(RETRY_S)
            if remaining <= 0:
                raise TransactionPending(signed.hash)

    async def _send_again(self, signed: SignedTransaction) -> None:
        """The node may have dropped it, or what was sent before it: then it stands in a block with a wrong nonce."""
        await self._resend_earlier(signed)
        await self._client.broadcast(signed.data)

    def _finish(self, signed: SignedTransaction, status: TxStatus) -> TxResult:
        if status.code != 0:
            self._forget(signed)
            raise TransactionFailed(status.code, status.log, tx_hash=signed.hash, height=status.height)
        self._drop(signed)
        return TxResult(hash=signed.hash, height=status.height, code=0, log=status.log, ids=status.ids)

    def _forget(self, signed: SignedTransaction) -> None:
        """Start counting nonces from the account again: this one may be free."""
        self._drop(signed)
        self._next_nonce = None

    def _drop(self, signed: SignedTransaction) -> None:
        held = self._in_flight.get(signed.nonce)
        if held is not None and held.hash == signed.hash:
            del self._in_flight[signed.nonce]
