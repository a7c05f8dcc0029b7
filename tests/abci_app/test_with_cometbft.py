"""The application under a real CometBFT: transfers, SIGKILL, restart, replay, garbage in blocks, resent transactions.

The engine is killed too once the application is gone: v0.38 wants to stop then, and now and then never gets there.
"""

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from abci_app.errors import WrongNonce
from abci_app.proofs import KeyProof, check_key_proof
from abci_app.records import Account
from abci_app.tables import ACCOUNTS
from primitives.encoding import decode
from tests.abci_app.cometbft import Engine
from tests.abci_app.kit import BOB, CHAIN_ID, RICH, AppProcess, transfer
from tests.abci_app.lax_application import FIRST_HEIGHT, LAST_HEIGHT, NUM_GARBAGE

pytestmark = pytest.mark.network


async def broadcast(engine: Engine, tx: bytes) -> dict:
    return await engine.call("broadcast_tx_commit", tx=base64.b64encode(tx).decode())


@contextlib.asynccontextmanager
async def running(app: AppProcess, engine: Engine) -> AsyncIterator[None]:
    """Both, killed at the end: v0.38 wants to stop once its application has gone, and now and then never gets there."""
    await app.start()
    try:
        await engine.start()
        try:
            yield
        finally:
            await engine.kill()
    finally:
        await app.kill()


async def balance_of_bob(engine: Engine) -> int:
    answer = await engine.call("abci_query", path="key", data=ACCOUNTS.key(BOB.address).hex())
    return decode(base64.b64decode(answer["response"]["value"]), Account).balance


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


async def test_decided_blocks_with_garbage_get_a_result_for_each_transaction_and_the_chain_goes_on(
    tmp_path: Path,
) -> None:
    """FAULTS C16: a validator whose application lets everything through, then the real one on the same blocks."""
    lax = AppProcess(tmp_path, module="tests.abci_app.lax_application")
    engine = Engine(tmp_path / "cometbft", lax.socket)
    await engine.init(CHAIN_ID)
    async with running(lax, engine):
        assert (await broadcast(engine, b"through the mempool"))["tx_result"]["code"] != 0
        paid = await broadcast(engine, transfer(0))
        assert paid["tx_result"]["code"] == 0
        last = await engine.height_above(max(LAST_HEIGHT, int(paid["height"])))
        for height in range(FIRST_HEIGHT, LAST_HEIGHT + 1):
            txs = (await engine.call("block", height=str(height)))["block"]["data"]["txs"]
            results = (await engine.call("block_results", height=str(height)))["txs_results"]
            assert len(txs) == len(results) >= NUM_GARBAGE
            assert sum(result.get("code", 0) != 0 for result in results) >= NUM_GARBAGE
        hashes = [await app_hash_after(engine, height) for height in range(FIRST_HEIGHT, last)]

    async with running(AppProcess(tmp_path), engine):
        assert await engine.height_above(last + 1) > last + 1
        resent = await engine.call("broadcast_tx_sync", tx=base64.b64encode(b"through the mempool again").decode())
        assert resent["code"] != 0
        assert (await broadcast(engine, transfer(1)))["tx_result"]["code"] == 0
        assert await balance_of_bob(engine) == RICH + 2 * 5
        last = await engine.height_above(last + 2)

    replayed = AppProcess(tmp_path / "empty")
    replayed.home.mkdir()
    again = Engine(engine.home, replayed.socket)
    async with running(replayed, again):
        assert await again.height_above(last) > last
        assert [await app_hash_after(again, FIRST_HEIGHT + i) for i in range(len(hashes))] == hashes
        assert await balance_of_bob(again) == RICH + 2 * 5


async def test_a_committed_transaction_sent_again_is_refused_by_its_nonce_without_any_cache(tmp_path: Path) -> None:
    """FAULTS C20."""
    app = AppProcess(tmp_path)
    engine = Engine(tmp_path / "cometbft", app.socket)
    await engine.init(CHAIN_ID, cache_size="0")
    tx = base64.b64encode(transfer(0)).decode()
    async with running(app, engine):
        assert (await broadcast(engine, transfer(0)))["tx_result"]["code"] == 0
        for _ in range(2):
            assert (await engine.call("broadcast_tx_sync", tx=tx))["code"] == WrongNonce.code
    async with running(app, engine):
        assert (await engine.call("broadcast_tx_sync", tx=tx))["code"] == WrongNonce.code
        assert (await broadcast(engine, transfer(1)))["tx_result"]["code"] == 0
        assert await balance_of_bob(engine) == RICH + 2 * 5
