"""Services over an engine whose first block is not 1: what was before it is not known, and that is said."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from abci_app.messages import Transfer
from node.chain import Engine
from node.client import Client
from node.errors import FateUnknown, NonceUsed
from primitives.keys import PrivateKey
from tests.node.conftest import ALICE, Made, Served, serving
from tests.node.engine_double import EngineDouble

CAROL = PrivateKey.from_seed("carol").address
BEFORE = 6
"""Height of the snapshot."""


@pytest.fixture
async def synced(made: Made, engine: EngineDouble) -> AsyncIterator[Served]:
    """A node that restored the state of height BEFORE, and has the two blocks after it."""
    while engine.height < BEFORE + 2:
        engine.deliver()
    engine.first_held = BEFORE + 1
    async with serving(made, engine) as node:
        yield node


async def test_blocks_below_the_first_are_null_and_those_from_there_are_followed(synced: Served) -> None:
    async with Client(synced.url) as client:
        assert [await client.block(height) for height in (1, BEFORE)] == [None, None]
        first = await client.block(BEFORE + 1)
        assert first is not None
        assert first.app_hash == synced.engine.app_hashes[BEFORE]
        synced.engine.deliver()
        await client.wait_for_height(BEFORE + 3, timeout_s=10)
        assert (await client.node_status()).height == BEFORE + 3


async def test_a_restored_state_is_served_before_the_first_block(made: Made, engine: EngineDouble) -> None:
    while engine.height < BEFORE:
        engine.deliver()
    engine.first_held = BEFORE + 1
    async with serving(made, engine) as node, Client(node.url) as client:
        assert await client.height() == BEFORE
        assert (await client.account(ALICE.address)).balance == 10**12
        assert await client.block(BEFORE) is None
        assert (await client.tx(b"\x00" * 32)).first_height == BEFORE + 1
        engine.deliver()
        await client.wait_for_height(BEFORE + 1, timeout_s=10)


async def test_a_payment_in_a_block_before_the_snapshot_is_never_taken_for_lost(
    made: Made, engine: EngineDouble
) -> None:
    """Signed and sent, then the node was wiped and joined by state sync: signing anew would pay twice."""
    async with serving(made, engine) as node, Client(node.url, key=ALICE) as client:
        signed = await client.build([Transfer(to=CAROL, amount=5)])
        engine.deliver([signed.data])
        await node.node.follower.wait_for_height(2, 10)
    while engine.height < BEFORE + 2:
        engine.deliver()
    engine.first_held = BEFORE + 1
    async with serving(made, engine) as node, Client(node.url, key=ALICE) as client:
        with pytest.raises(FateUnknown, match=f"no blocks below {BEFORE + 1}.*ask another node"):
            await client.submit(signed)
        assert (await client.account(CAROL)).balance == 5


async def test_waiting_for_a_payment_across_a_state_sync_ends_without_paying_again(
    made: Made, engine: EngineDouble
) -> None:
    async with serving(made, engine) as node, Client(node.url, key=ALICE) as client:
        sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)], timeout_s=20))
        async with asyncio.timeout(10):
            while not engine.mempool:
                await asyncio.sleep(0.01)
        engine.deliver(change=lambda _: setattr(engine, "first_held", engine.height + 2))
        with pytest.raises(FateUnknown):
            await sent
        engine.deliver()
        assert (await client.account(CAROL)).balance == 5


async def test_a_payment_signed_after_the_snapshot_is_told_apart_from_a_stranger(synced: Served) -> None:
    async with Client(synced.url, key=ALICE) as client, Client(synced.url, key=ALICE) as other:
        signed = await client.build([Transfer(to=CAROL, amount=5)])
        await other.send([Transfer(to=CAROL, amount=7)], wait=False)
        synced.engine.deliver()
        await client.wait_for_height(BEFORE + 3, timeout_s=10)
        with pytest.raises(NonceUsed):
            await client.submit(signed)


async def test_the_first_height_of_a_fresh_chain_is_one(synced: Served) -> None:
    link: Engine = synced.node.engine
    assert await link.first_height() == BEFORE + 1
    synced.engine.odd["status"] = {"sync_info": {"earliest_block_height": "0"}}
    synced.engine.odd["abci_info"] = {"response": {}}
    assert await link.first_height() == 1
