"""The application under a real CometBFT: transfers, SIGKILL, restart, replay.

The engine is killed too once the application is gone: v0.38 wants to stop then, and now and then never gets there.
"""

import base64
from pathlib import Path

import pytest

from abci_app.proofs import KeyProof, check_key_proof
from abci_app.records import Account
from abci_app.tables import ACCOUNTS
from primitives.encoding import decode
from tests.abci_app.cometbft import Engine
from tests.abci_app.kit import BOB, CHAIN_ID, RICH, AppProcess, transfer

pytestmark = pytest.mark.network


async def broadcast(engine: Engine, tx: bytes) -> dict:
    return await engine.call("broadcast_tx_commit", tx=base64.b64encode(tx).decode())


async def app_hash_after(engine: Engine, height: int) -> str:
    """The app hash of the state after block `height`: it stands in the next header."""
    await engine.height_above(height)
    block = await engine.call("block", height=str(height + 1))
    return block["block"]["header"]["app_hash"]


async def test_a_killed_application_goes_on_and_a_replay_gives_the_same_app_hash(tmp_path: Path) -> None:
    app = AppProcess(tmp_path)
    engine = Engine(tmp_path / "cometbft", app.socket)
    await engine.init(CHAIN_ID)
    try:
        await app.start()
        await engine.start()
        results = [await broadcast(engine, transfer(nonce)) for nonce in range(3)]
        assert [result["tx_result"]["code"] for result in results] == [0, 0, 0]
        height = int(results[-1]["height"])
        before = await app_hash_after(engine, height)

        await app.kill()
        await engine.kill()
        await app.start()
        await engine.start()
        assert await engine.height_above(height + 2) > height + 2
        resent = await engine.call("broadcast_tx_sync", tx=base64.b64encode(transfer(2)).decode())
        assert resent["code"] == 20
        assert (await broadcast(engine, transfer(3)))["tx_result"]["code"] == 0

        key = ACCOUNTS.key(BOB.address)
        answer = (await engine.call("abci_query", path="key", data=key.hex(), prove=True))["response"]
        proof = KeyProof.from_bytes(base64.b64decode(answer["proofOps"]["ops"][0]["data"]))
        check_key_proof(bytes.fromhex(await app_hash_after(engine, int(answer["height"]))), proof)
        assert decode(proof.value or b"", Account) == Account(balance=RICH + 4 * 5)

        await app.kill()
        await engine.kill()
        replayed = AppProcess(tmp_path / "empty", ("--check",))
        replayed.home.mkdir()
        engine_again = Engine(engine.home, replayed.socket)
        await replayed.start()
        assert "height=0" in replayed.ready_line
        await engine_again.start()
        try:
            assert await app_hash_after(engine_again, height) == before
            last = await engine_again.height_above(height + 3)
            assert await engine_again.height_above(last) > last
        finally:
            await engine_again.kill()
            await replayed.kill()
    finally:
        if engine.process.returncode is None:
            await engine.kill()
        await app.kill()
