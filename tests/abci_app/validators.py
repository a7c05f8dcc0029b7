"""Four validators, each a real CometBFT with a real application and no services: for tests marked `network`."""

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from node.engine_files import consensus_address
from tests.abci_app.cometbft import Engine
from tests.abci_app.kit import CHAIN_ID, MAX_BLOCK_BYTES, POWER, AppProcess, genesis, transfer

DEADLINE_S = 90
SETTINGS = {
    "timeout_commit": '"20ms"',
    "timeout_propose": '"1s"',
    "timeout_prevote": '"300ms"',
    "timeout_precommit": '"300ms"',
    "peer_gossip_sleep_duration": '"10ms"',
    "flush_throttle_timeout": '"10ms"',
    "addr_book_strict": "false",
    "allow_duplicate_ip": "true",
    "persistent_peers_max_dial_period": '"1s"',
}


class Validator:
    """One of them; both processes start and end together, as under the supervisor."""

    def __init__(self, home: Path, module: str = "abci_app") -> None:
        home.mkdir(parents=True)
        self.app = AppProcess(home, module=module)
        self.engine = Engine(home / "cometbft", self.app.socket)

    async def start(self, app: dict[str, str] | None = None, engine: dict[str, str] | None = None) -> None:
        """`app` and `engine`: variables for the one and the other."""
        self.app.environment = app or {}
        await self.app.start()
        await self.engine.start(**(engine or {}))

    async def kill(self) -> None:
        """SIGKILL to both, and wait for their ends; harmless when they have ended."""
        await self.engine.kill()
        await self.app.kill()

    async def app_hash(self) -> tuple[int, str]:
        """What the application says of itself: height, and app hash in hex."""
        info = (await self.engine.call("abci_info"))["response"]
        return int(info.get("last_block_height", 0)), base64.b64decode(info["last_block_app_hash"]).hex()

    async def header_hash(self, height: int) -> str:
        """The app hash in header `height`, in hex: of the state before that block."""
        header = (await self.engine.call("block", height=str(height)))["block"]["header"]
        return str(header["app_hash"]).lower()

    async def reach(self, height: int) -> None:
        """Wait until its block `height` is there."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.engine.height_above(0) < height:
                await asyncio.sleep(0.05)


async def make_validators(
    home: Path, count: int = 4, modules: dict[int, str] | None = None, *, block_bytes: int = MAX_BLOCK_BYTES
) -> list[Validator]:
    """Homes with one genesis; not started. `modules`: applications other than ours, by index. At most half of a block
    of `block_bytes` may be evidence."""
    made = [Validator(home / f"v{index}", (modules or {}).get(index, "abci_app")) for index in range(count)]
    for one in made:
        await one.engine.init(CHAIN_ID, **SETTINGS)
    paths = [one.engine.home / "config" / "genesis.json" for one in made]
    documents = [json.loads(path.read_text()) for path in paths]
    keys = [base64.b64decode(document["validators"][0]["pub_key"]["value"]) for document in documents]
    first = documents[0]
    first["validators"] = [
        {**document["validators"][0], "power": str(POWER), "address": consensus_address(key).hex().upper()}
        for document, key in zip(documents, keys, strict=True)
    ]
    first["app_state"] = json.loads(genesis(*keys))
    first["consensus_params"]["block"]["max_bytes"] = str(block_bytes)
    first["consensus_params"]["evidence"]["max_bytes"] = str(block_bytes // 2)
    for path in paths:
        path.write_text(json.dumps(first))
    peers = [f"{await one.engine.node_id()}@{one.engine.p2p}" for one in made]
    for index, one in enumerate(made):
        one.engine.set_config(persistent_peers=json.dumps(",".join(peers[:index] + peers[index + 1 :])))
    return made


async def another_machine(home: Path, peers: Sequence[Validator], *, key_of: Validator | None = None) -> Validator:
    """One more with the same genesis, not started: with a consensus key of its own, or with that of another validator
    but no memory of what was signed with it."""
    added = Validator(home)
    await added.engine.init(CHAIN_ID)
    source, target = (one.engine.home / "config" for one in (key_of or peers[0], added))
    names = ["genesis.json", "config.toml", *(["priv_validator_key.json"] if key_of else [])]
    for name in names:
        shutil.copy(source / name, target / name)
    addresses = [f"{await one.engine.node_id()}@{one.engine.p2p}" for one in peers]
    added.engine.set_config(persistent_peers=json.dumps(",".join(addresses)))
    return added


@contextlib.asynccontextmanager
async def running(validators: Sequence[Validator]) -> AsyncIterator[None]:
    """Start them all; whatever happens, none is left."""
    try:
        for one in validators:
            await one.start()
        yield
    finally:
        for one in validators:
            if hasattr(one.engine, "process") and hasattr(one.app, "process"):
                await one.kill()


class Payments:
    """Alice pays Bob 5 again and again through one validator, as fast as blocks take it."""

    def __init__(self, through: Validator) -> None:
        self._through = through
        self.sent = 0

    async def keep_paying(self, stop: asyncio.Event) -> None:
        """Until `stop`; `sent` are those that are in the chain."""
        while not stop.is_set():
            await self.pay()

    async def pay(self) -> int:
        """One payment; returns the height of its block."""
        tx = base64.b64encode(transfer(self.sent)).decode()
        async with asyncio.timeout(DEADLINE_S):
            result = await self._through.engine.call("broadcast_tx_commit", tx=tx)
        assert result["tx_result"].get("code", 0) == 0, result
        self.sent += 1
        return int(result["height"])


async def assert_equal(validators: Sequence[Validator], height: int) -> None:
    """All have the same app hash in every header up to `height`, and each application stands where its engine says."""
    for one in validators:
        await one.reach(height + 1)
    for at in range(1, height + 1):
        hashes = {await one.header_hash(at) for one in validators}
        assert len(hashes) == 1, f"height {at}: {hashes}"
    for one in validators:
        own_height, own_hash = await one.app_hash()
        await validators[0].reach(own_height + 1)
        assert own_hash == await validators[0].header_hash(own_height + 1)
