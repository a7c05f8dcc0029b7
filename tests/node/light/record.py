"""Records what a real network says of its first blocks into recorded.json: four validators, one of which changes its
power and one of which is away for a while. The hashes in there are CometBFT's own.

    python -m tests.node.light.record
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from abci_app.messages import Bond
from abci_app.tables import ACCOUNTS
from localnet.network import Localnet
from node import rpc_types as rpc
from node.client import Client
from node.init import OPERATOR_KEY
from node.keys import load_key
from node.rpc_client import RpcConnection
from primitives.amounts import MICRO_PER_TOKEN

RECORDED: Final = Path(__file__).parent / "recorded.json"
NUM_QUIET_BLOCKS: Final = 3


async def record() -> dict[str, Any]:
    """The document."""
    with tempfile.TemporaryDirectory(prefix="on-") as folder:
        async with Localnet(Path(folder) / "net", nodes=4) as net, net.client() as client:
            await net.wait_for_height(3)
            operator = load_key(Path(net.nodes[1].home) / OPERATOR_KEY)
            async with net.client(0, operator) as bonder:
                await bonder.send([Bond(amount=40 * MICRO_PER_TOKEN)])
            await client.wait_for_height(await client.height() + NUM_QUIET_BLOCKS)
            await net.stop_node(3)
            await client.wait_for_height(await client.height() + NUM_QUIET_BLOCKS)
            present, absent = ACCOUNTS.key(net.faucet.address), ACCOUNTS.key(bytes(20))
            values = [await _state(client, key) for key in (present, absent)]
            last = await client.wait_for_height(max(value["height"] for value in values) + 1)
            engine = RpcConnection(f"{net.nodes[0].url}/engine")
            blocks = [await _light_block(engine, height) for height in range(1, last + 1)]
            status = await engine.call("status", {})
            await engine.close()
            genesis = json.loads((Path(net.nodes[0].home) / "cometbft/config/genesis.json").read_text())
            version = status["node_info"]["version"]
            return {"engine_version": version, "genesis": genesis, "values": values, "blocks": blocks}


async def _state(client: Client, key: bytes) -> dict[str, Any]:
    params = rpc.StateParams(key=key, prove=True)
    answer: rpc.StateValue = await client.call("state_get", params, rpc.StateValue)
    assert answer.proof is not None
    return {"key": key.hex(), "height": answer.height, "proof": answer.proof.hex()}


async def _light_block(engine: RpcConnection, height: int) -> dict[str, Any]:
    wanted = {"height": str(height)}
    validators = await engine.call("validators", {**wanted, "per_page": "100"})
    return {"commit": await engine.call("commit", wanted), "validators": validators}


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(asyncio.run(record()), indent=1) + "\n")
