"""Every transaction gets into a block exactly once, whatever happens on the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from abci_app import tables
from abci_app.errors import InsufficientFunds, WrongNonce
from abci_app.messages import Transfer
from abci_app.transactions import TxBody, decode_transaction, sign_transaction
from node import sending
from node.client import Client
from node.errors import NOT_INCLUDED, NodeUnreachable, NonceUsed, ProofError, TransactionFailed, TransactionPending
from node.sending import SignedTransaction
from tests.node.conftest import ALICE, BOB, CHAIN_ID, Served

CAROL = b"\x03" * 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "RETRY_S", 0.01)
    monkeypatch.setattr(sending, "RESEND_S", 0.1)


@asynccontextmanager
async def blocks_as_needed(served: Served) -> AsyncIterator[None]:
    """A block whenever a transaction waits."""

    async def produce() -> None:
        while True:
            if served.engine.mempool:
                served.engine.deliver()
            await asyncio.sleep(0.02)

    producing = asyncio.create_task(produce())
    try:
        yield
    finally:
        producing.cancel()


async def balance(client: Client, address: bytes = CAROL) -> int:
    return (await client.account(address)).balance


def nonce_of(tx: bytes) -> int:
    return decode_transaction(tx)[1].nonce


async def waiting(served: Served, count: int = 1) -> None:
    async with asyncio.timeout(5):
        while len(served.engine.mempool) < count:
            await asyncio.sleep(0.01)


async def test_transfer_is_in_a_block_when_send_returns(served: Served, client: Client) -> None:
    async with blocks_as_needed(served):
        result = await client.send([Transfer(to=CAROL, amount=7)])
    assert (result.code, result.ids) == (0, (0,))
    assert result.height == served.engine.height
    assert await balance(client) == 7


async def test_many_sends_at_once_use_contiguous_nonces(served: Served, client: Client) -> None:
    async with blocks_as_needed(served):
        results = await asyncio.gather(*(client.send([Transfer(to=CAROL, amount=1)]) for _ in range(30)))
    assert len({result.hash for result in results}) == 30
    assert await balance(client) == 30


async def test_refused_transaction_raises_with_the_chains_code(served: Served, client: Client) -> None:
    async with blocks_as_needed(served):
        with pytest.raises(TransactionFailed) as failure:
            await client.send([Transfer(to=CAROL, amount=10**15)])
    assert failure.value.code == InsufficientFunds.code


async def test_fee_too_low_is_refused_before_a_block(served: Served, client: Client) -> None:
    with pytest.raises(TransactionFailed, match="fee is 1"):
        await client.send([Transfer(to=CAROL, amount=1)], fee=1)
    assert served.engine.height == 1


async def test_lost_answer_does_not_pay_twice(served: Served, client: Client) -> None:
    served.engine.lose_answers = 2
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=5)])
    assert await balance(client) == 5
    assert (await client.account(ALICE.address)).nonce == 1


async def test_transaction_dropped_by_the_mempool_is_sent_again(served: Served, client: Client) -> None:
    """FAULTS C10: accepted, then gone without a trace."""
    sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)]))
    await waiting(served)
    served.engine.drop_waiting()
    await waiting(served)
    served.engine.deliver()
    await sent
    assert await balance(client) == 5


async def test_full_mempool_is_reported_and_the_same_bytes_go_in_later(served: Served, client: Client) -> None:
    """FAULTS C10."""
    served.engine.mempool_full = True
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    with pytest.raises(Exception, match="mempool is full"):
        await client.submit(signed, timeout_s=0.05)
    served.engine.mempool_full = False
    async with blocks_as_needed(served):
        assert (await client.submit(signed)).hash == signed.hash
    assert await balance(client) == 5


async def test_submitting_again_after_the_commit_gives_the_same_result(served: Served, client: Client) -> None:
    """FAULTS C20, C22: the hash is known beforehand; a repeat is harmless, also after all caches are gone."""
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    async with blocks_as_needed(served):
        first = await client.submit(signed)
        served.engine.drop_waiting()
        async with Client(served.url, key=ALICE) as restarted:
            again = await restarted.submit(signed)
    assert (first.hash, first.height) == (again.hash, again.height) == (signed.hash, first.height)
    assert await balance(client) == 5


async def test_committed_transaction_in_another_block_is_refused_by_its_nonce(served: Served, client: Client) -> None:
    """FAULTS C20."""
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    served.engine.deliver([signed.data])
    served.engine.deliver([signed.data])
    assert served.engine.blocks[-1][1][0].code == WrongNonce.code
    assert await balance(client) == 5


async def test_slow_commit_raises_pending_with_the_hash(served: Served, client: Client) -> None:
    """FAULTS C22."""
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    with pytest.raises(TransactionPending) as pending:
        await client.submit(signed, timeout_s=0.2)
    assert pending.value.tx_hash == signed.hash
    assert (await client.tx(signed.hash)).status == "pending"
    served.engine.deliver()
    assert (await client.tx(signed.hash, wait_s=5)).status == "committed"


async def test_nonce_taken_by_another_program_is_followed(served: Served, client: Client) -> None:
    async with blocks_as_needed(served), Client(served.url, key=ALICE) as other:
        for amount in (1, 10, 100):
            await client.send([Transfer(to=CAROL, amount=amount)])
            await other.send([Transfer(to=CAROL, amount=amount * 1000)])
    assert await balance(client) == 111_111


async def test_own_nonce_overtaken_in_the_same_block_is_signed_anew(served: Served, client: Client) -> None:
    sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)]))
    await waiting(served)
    body = TxBody(
        chain_id=CHAIN_ID, nonce=0, fee=10_000, valid_until_height=0, messages=(Transfer(to=CAROL, amount=1000),)
    )
    served.engine.deliver([sign_transaction(body, ALICE), *served.engine.mempool])
    async with blocks_as_needed(served):
        await sent
    assert await balance(client) == 1005


async def test_gap_left_by_a_dropped_transaction_is_filled(served: Served, client: Client) -> None:
    first = await client.send([Transfer(to=CAROL, amount=1)], wait=False)
    served.engine.drop_waiting()
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=10)])
    assert (await client.tx(first.hash, wait_s=5)).status == "committed"
    assert await balance(client) == 11


async def test_a_nonce_whose_transaction_was_refused_is_used_by_the_next_one(served: Served, client: Client) -> None:
    """FAULTS C13: built, then refused before any block."""
    refused = await client.build([Transfer(to=CAROL, amount=1)], fee=1)
    with pytest.raises(TransactionFailed, match="fee is 1"):
        await client.submit(refused)
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=10)])
    assert await balance(client) == 10


async def test_what_was_sent_behind_a_refused_transaction_is_not_held_up(served: Served, client: Client) -> None:
    """FAULTS C13: the later one is in the mempool already, so the gap before it has to be filled."""
    refused = await client.build([Transfer(to=CAROL, amount=1)], fee=1)
    later = asyncio.create_task(client.send([Transfer(to=CAROL, amount=10)]))
    await waiting(served)
    with pytest.raises(TransactionFailed, match="fee is 1"):
        await client.submit(refused)
    async with asyncio.timeout(10):
        await waiting(served, 2)
        served.engine.deliver(sorted(served.engine.mempool, key=nonce_of))
        await later
        async with blocks_as_needed(served):
            await client.send([Transfer(to=CAROL, amount=100)])
    assert await balance(client) == 110


async def test_a_refusal_by_form_is_told_before_anything_is_signed(served: Served, client: Client) -> None:
    with pytest.raises(TransactionFailed, match="amount"):
        await client.send([Transfer(to=CAROL, amount=0)])
    with pytest.raises(TransactionFailed, match="amount"):
        await client.build([Transfer(to=CAROL, amount=2**70)])
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=10)])
    assert await balance(client) == 10


async def test_the_bytes_are_seen_before_they_are_sent_and_again_when_signed_anew(
    served: Served, client: Client
) -> None:
    seen: list[SignedTransaction] = []
    sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)], on_signed=seen.append))
    await waiting(served)
    assert [signed.data for signed in seen] == served.engine.mempool
    body = TxBody(
        chain_id=CHAIN_ID, nonce=0, fee=10_000, valid_until_height=0, messages=(Transfer(to=CAROL, amount=1000),)
    )
    served.engine.deliver([sign_transaction(body, ALICE), *served.engine.mempool])
    async with blocks_as_needed(served):
        result = await sent
    assert [signed.nonce for signed in seen] == [0, 1]
    assert result.hash == seen[-1].hash


async def test_bytes_that_cannot_be_written_down_are_not_sent(served: Served, client: Client) -> None:
    def full(signed: SignedTransaction) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await client.send([Transfer(to=CAROL, amount=5)], on_signed=full)
    assert served.engine.mempool == []
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=10)])
    assert await balance(client) == 10


async def test_bytes_whose_nonce_another_one_used_are_reported_as_such(served: Served, client: Client) -> None:
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    async with blocks_as_needed(served), Client(served.url, key=ALICE) as other:
        await other.send([Transfer(to=CAROL, amount=1000)])
        with pytest.raises(NonceUsed):
            await client.submit(signed)
        await client.send([Transfer(to=CAROL, amount=1)])
    assert await balance(client) == 1001


async def test_committed_bytes_are_found_also_after_their_last_height(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mempool calls them expired; what counts is that they are in a block."""
    monkeypatch.setattr(sending, "VALID_BLOCKS", 2)
    signed = await client.build([Transfer(to=CAROL, amount=5)])
    height = served.engine.deliver([signed.data])
    for _ in range(4):
        served.engine.deliver([])
    result = await client.submit(signed)
    assert (result.hash, result.height) == (signed.hash, height)


async def test_transaction_that_missed_its_last_height_is_reported_as_never_included(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "VALID_BLOCKS", 2)
    monkeypatch.setattr(sending, "HEIGHT_KEPT_S", 0.0)
    sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)]))
    await waiting(served)
    served.engine.mempool_full = True
    served.engine.drop_waiting()
    for _ in range(4):
        served.engine.deliver([])
    with pytest.raises(TransactionFailed) as failure:
        await sent
    assert failure.value.code == NOT_INCLUDED
    served.engine.mempool_full = False
    async with blocks_as_needed(served):
        await client.send([Transfer(to=CAROL, amount=6)])
    assert await balance(client) == 6


async def test_restart_of_the_engine_is_waited_through(served: Served, client: Client) -> None:
    sent = asyncio.create_task(client.send([Transfer(to=CAROL, amount=5)]))
    await waiting(served)
    served.engine.down = True
    await asyncio.sleep(0)
    served.engine.drop_waiting()
    served.engine.down = False
    async with blocks_as_needed(served):
        await sent
    assert await balance(client) == 5


async def test_sending_without_key_or_node_says_so() -> None:
    async with Client("127.0.0.1:9", timeout_s=2) as client:
        with pytest.raises(ValueError, match="has no key"):
            await client.send([Transfer(to=CAROL, amount=5)])
        with pytest.raises(NodeUnreachable, match=r"127.0.0.1:9.*Is the node running"):
            await client.height()


async def test_record_and_absence_prove_against_the_next_header(served: Served, client: Client) -> None:
    served.engine.deliver([])
    proving = asyncio.create_task(client.proved(tables.ACCOUNTS, BOB.address))
    await asyncio.sleep(0.05)
    served.engine.deliver([])
    assert (await proving) == await client.account(BOB.address)
    proving_absence = asyncio.create_task(client.proved(tables.ACCOUNTS, CAROL))
    await asyncio.sleep(0.05)
    served.engine.deliver([])
    assert await proving_absence is None


async def test_forged_header_or_value_is_found_out(served: Served, client: Client) -> None:
    served.engine.app_hashes[-1] = b"\x00" * 32
    proving = asyncio.create_task(client.proved(tables.ACCOUNTS, BOB.address))
    await asyncio.sleep(0.05)
    served.engine.deliver([])
    with pytest.raises(ProofError, match="does not lead to the app hash"):
        await proving
