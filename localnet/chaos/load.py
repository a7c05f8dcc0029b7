"""The load: accounts that pay one after the other through whichever node answers, and write down what they are told.

Each payment goes to an account of its own, so that it can be found in the chain and counted there. One account puts
money aside in a storage deal with every payment; nobody activates it, so that it comes back later. A payment that was
signed is never signed anew here: on silence the very same bytes go to the next node.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TextIO

from abci_app.messages import CreateDeal, Message, Transfer
from localnet.chaos.ledger import Told
from localnet.network import Localnet
from node.client import Client, SignedTransaction, TxResult
from node.errors import NodeError, TransactionFailed
from primitives.amounts import MICRO_PER_TOKEN
from primitives.hashing import sha256
from primitives.keys import PrivateKey

SENDER_TOKENS: Final = 100
PATIENCE_S: Final = 6.0
"""How long one node may take before the next one is asked."""
PAUSE_S: Final = 0.1
"""Between payments of one account."""
RETRY_S: Final = 0.3
MAX_AMOUNT_MICRO: Final = 1000
DEAL_BYTES: Final = 1 << 20
DEAL_BLOCKS: Final = 100
LAST_PAYMENT_S: Final = 60.0
"""How long payments under way may take at the end."""


class Journal:
    """What the nodes said, in memory and line by line in a file."""

    def __init__(self, file: TextIO) -> None:
        self.told = Told()
        self._file = file

    def paying(self, to: bytes, amount: int) -> None:
        self.told.payments[to] = amount

    def signed(self, to: bytes, transaction: SignedTransaction) -> None:
        self.told.sent.add(transaction.hash)
        self._write("signed", to, transaction.hash, nonce=transaction.nonce)

    def acknowledged(self, to: bytes, result: TxResult, node: int) -> None:
        self.told.acknowledged[result.hash] = result.height
        self._write("acknowledged", to, result.hash, height=result.height, node=node)

    def refused(self, to: bytes, error: TransactionFailed, node: int) -> None:
        self.told.refused.add(to)
        self._write("refused", to, error.tx_hash, error=str(error), node=node)

    def silent(self, to: bytes, error: NodeError, node: int) -> None:
        self._write("silent", to, b"", error=str(error), node=node)

    def _write(self, what: str, to: bytes, tx_hash: bytes, **more: Any) -> None:
        entry = {"what": what, "to": to.hex(), "hash": tx_hash.hex(), **more}
        self._file.write(json.dumps(entry) + "\n")


class Payer:
    """One account and its clients, one for each node."""

    def __init__(
        self, name: str, clients: Sequence[Client], first_node: int, journal: Journal, *, with_deals: bool
    ) -> None:
        self._name = name
        self._with_deals = with_deals
        self._clients = clients
        self._node = first_node
        self._journal = journal
        self._chance = random.Random(name)
        self._paid = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Pay until `stop`, finishing what was begun."""
        while not stop.is_set():
            await self._pay()
            await asyncio.sleep(PAUSE_S)

    async def _pay(self) -> None:
        to = sha256(f"{self._name}/{self._paid}".encode())[:20]
        amount = self._chance.randint(1, MAX_AMOUNT_MICRO)
        messages: list[Message] = [Transfer(to=to, amount=amount)]
        if self._with_deals:
            messages.append(_deal_for(to))
        self._paid += 1
        self._journal.paying(to, amount)
        signed: SignedTransaction | None = None

        def remember(transaction: SignedTransaction) -> None:
            nonlocal signed
            signed = transaction
            self._journal.signed(to, transaction)

        while True:
            client = self._clients[self._node]
            try:
                if signed is None:
                    result = await client.send(messages, timeout_s=PATIENCE_S, on_signed=remember)
                else:
                    result = await client.submit(signed, timeout_s=PATIENCE_S)
            except TransactionFailed as error:
                return self._journal.refused(to, error, self._node)
            except NodeError as error:
                self._journal.silent(to, error, self._node)
                self._node = (self._node + 1) % len(self._clients)
                await asyncio.sleep(RETRY_S)
            else:
                return self._journal.acknowledged(to, result, self._node)


def _deal_for(to: bytes) -> CreateDeal:
    root = sha256(to)
    return CreateDeal(
        key=root, root=root, size=DEAL_BYTES, tier="temporary", replicas=2, duration=DEAL_BLOCKS, series="chaos"
    )


class Load:
    """Several payers at work. `stop` lets them finish; leaving without it breaks them off."""

    def __init__(self, net: Localnet, journal: Path, *, seed: int, payers: int) -> None:
        self._net = net
        self._path = journal
        self._stop = asyncio.Event()
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._keys = [PrivateKey.from_seed(f"chaos/{seed}/{i}") for i in range(payers)]
        self.journal: Journal

    async def __aenter__(self) -> "Load":
        """Give every payer its tokens and start them.

        Raises: NodeError.
        """
        gifts = [Transfer(to=key.address, amount=SENDER_TOKENS * MICRO_PER_TOKEN) for key in self._keys]
        async with self._net.client(0, self._net.faucet) as client:
            await client.send(gifts)
        self.journal = Journal(self._stack.enter_context(self._path.open("w", buffering=1)))
        for number, key in enumerate(self._keys):
            clients = [
                await self._stack.enter_async_context(self._net.client(node.index, key)) for node in self._net.nodes
            ]
            name = f"{self._net.state.chain_id}/{number}"
            payer = Payer(name, clients, number % len(clients), self.journal, with_deals=number == 0)
            self._tasks.append(asyncio.create_task(payer.run(self._stop)))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def check(self) -> None:
        """Raises: what ended a payer."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Let every payer finish its payment.

        Raises: TimeoutError when one does not come to an end; what ended a payer.
        """
        self._stop.set()
        async with asyncio.timeout(LAST_PAYMENT_S):
            await asyncio.gather(*self._tasks)
