"""The engine double with blocks that its one validator signs, and lies on demand."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from abci_app.store import Store
from node.config import ports_from
from node.genesis import install_genesis, make_genesis
from node.init import NodeIdentity, init_node
from node.light.blocks import LightBlock
from node.light.decoding import read_time
from node.light.hashes import NS_PER_S
from tests.node.conftest import ALICE, BOB, CHAIN_ID, Made, Served, serving
from tests.node.engine_double import EngineDouble
from tests.node.light.chain import (
    NO_BLOCK,
    Signer,
    block_id,
    commit_json,
    make_header,
    sign,
    validators_json,
)

GENESIS_AGE_S: Final = 120
BLOCK_S: Final = 0.05

Lie = Callable[[Any], Any]


class SignedEngine(EngineDouble):
    """`lies` maps a method of the RPC to what becomes of its true answer."""

    def __init__(self, store: Store, genesis: bytes, signer: Signer) -> None:
        document = json.loads(genesis)
        super().__init__(store, json.dumps(document["app_state"]).encode(), CHAIN_ID)
        self.signer = signer
        self.lies: dict[str, Lie] = {}
        self.behind_s = 0
        """How old each new block says it is."""
        self._times = [read_time(document["genesis_time"])]
        self._signed: dict[int, LightBlock] = {}

    def deliver(self, *args: Any, **kwargs: Any) -> int:
        self._times.append(time.time_ns() - self.behind_s * NS_PER_S)
        return super().deliver(*args, **kwargs)

    def light_block(self, height: int) -> LightBlock:
        """The block, made and signed once."""
        if height not in self._signed:
            below = block_id(self.light_block(height - 1).header) if height > 1 else NO_BLOCK
            app_hash, time_ns = self.app_hashes[height - 1], self._times[height - 1]
            header = make_header(CHAIN_ID, height, [self.signer], below=below, app_hash=app_hash, time_ns=time_ns)
            self._signed[height] = sign(header, [self.signer])
        return self._signed[height]

    def _commit(self, height: str) -> dict[str, Any]:
        return self._told("commit", commit_json(self.light_block(self._number(height))))

    def _validators(self, page: str, per_page: str, height: str | None = None) -> dict[str, Any]:
        return self._told("validators", validators_json(self.light_block(self._number(height))))

    def _abci_query(self, path: str, data: str, prove: bool) -> dict[str, Any]:
        answer: dict[str, Any] = self._told("abci_query", super()._abci_query(path, data, prove))
        return answer

    def _told(self, method: str, truth: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.lies.get(method, lambda answer: answer)(truth)
        return answer


def make_home(home: Path) -> tuple[Made, Signer]:
    """A node's home whose genesis is two minutes old, and its validator."""
    identity: NodeIdentity = init_node(home, moniker="test", network=ports_from(40000))
    accounts = {ALICE.address: 10**12, BOB.address: 10**12, identity.operator: 10**9}
    born = datetime.fromtimestamp(time.time() - GENESIS_AGE_S, UTC)
    genesis = make_genesis([identity], accounts, chain_id=CHAIN_ID, time=born)
    install_genesis(home, genesis)
    key = json.loads((home / "cometbft/config/priv_validator_key.json").read_text())["priv_key"]["value"]
    return Made(home, identity, genesis), Signer(base64.b64decode(key)[:32], power=100)


@asynccontextmanager
async def signed_node(made: Made, signer: Signer, folder: Path) -> AsyncIterator[tuple[Served, SignedEngine]]:
    """A node over such an engine, which makes blocks all the time."""

    async def produce() -> None:
        while True:
            engine.deliver()
            await asyncio.sleep(BLOCK_S)

    with Store(folder) as store:
        engine = SignedEngine(store, made.genesis, signer)
        async with serving(made, engine) as served:
            producing = asyncio.create_task(produce())
            try:
                yield served, engine
            finally:
                producing.cancel()
