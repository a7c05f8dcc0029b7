"""FAULTS C11: 5,000 transactions wait, every one is checked again after each block, and one of four nodes is behind."""

import asyncio
import base64
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from abci_app.messages import Transfer
from abci_app.records import Account
from abci_app.tables import ACCOUNTS
from primitives.encoding import decode
from primitives.keys import PrivateKey
from tests.abci_app.kit import ALICE, BOB, RICH, signed, transfer
from tests.abci_app.validators import DEADLINE_S, Validator, assert_equal, make_validators, running

pytestmark = pytest.mark.network

NUM_PAYERS = 100
PER_PAYER = 50
FUNDS = 10**9
BATCH = 250
LONGEST_INTERVAL_S = 20.0
"""Generous: this is about blocks that never come, not about speed."""


async def flood(validator: Validator, txs: list[bytes]) -> None:
    """Into its mempool, in batches, with the answer of CheckTx for each."""
    async with aiohttp.ClientSession() as session:
        for start in range(0, len(txs), BATCH):
            batch = [
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "method": "broadcast_tx_sync",
                    "params": {"tx": base64.b64encode(tx).decode()},
                }
                for number, tx in enumerate(txs[start : start + BATCH])
            ]
            async with session.post(validator.engine.rpc, json=batch) as response:
                answers = await response.json(content_type=None)
            assert all(answer["result"]["code"] == 0 for answer in answers), answers[:2]


async def pending(validator: Validator) -> int:
    return int((await validator.engine.call("num_unconfirmed_txs"))["total"])


async def balance_of_bob(validator: Validator) -> int:
    answer = await validator.engine.call("abci_query", path="key", data=ACCOUNTS.key(BOB.address).hex())
    return decode(base64.b64decode(answer["response"]["value"]), Account).balance


async def longest_interval(validator: Validator, first: int, last: int) -> float:
    """Seconds between the times in the headers of two blocks in a row."""
    times = []
    for height in range(first, last + 1):
        header = (await validator.engine.call("block", height=str(height)))["block"]["header"]
        whole, _, fraction = header["time"].rstrip("Z").partition(".")
        hours, minutes, seconds = whole.split("T")[1].split(":")
        times.append(int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction or 0}"))
    return max((later - earlier) % 86_400 for earlier, later in pairwise(times))


async def test_five_thousand_pending_transactions_are_worked_off_and_a_node_that_was_behind_converges(
    tmp_path: Path,
) -> None:
    validators = await make_validators(tmp_path)
    validators[0].engine.set_config(max_request_batch_size=str(BATCH))
    payers = [PrivateKey.from_seed(f"payer{index}") for index in range(NUM_PAYERS)]
    txs = [transfer(nonce, sender=payer) for nonce in range(PER_PAYER) for payer in payers]
    async with running(validators):
        funding = signed(ALICE, 0, *(Transfer(to=payer.address, amount=FUNDS) for payer in payers))
        funded = await validators[0].engine.call("broadcast_tx_commit", tx=base64.b64encode(funding).decode())
        assert funded["tx_result"].get("code", 0) == 0
        for absent in validators[2:]:
            await absent.reach(int(funded["height"]))
            await absent.kill()
        await flood(validators[0], txs)
        assert await pending(validators[0]) == len(txs)

        resumed = await validators[0].engine.height_above(0)
        await validators[2].start()
        last = resumed
        async with asyncio.timeout(2 * DEADLINE_S):
            while await pending(validators[0]):
                last = await validators[0].engine.height_above(last)
        assert await balance_of_bob(validators[0]) == RICH + 5 * len(txs)
        last = await validators[0].engine.height_above(last)
        assert await longest_interval(validators[0], resumed + 1, last) < LONGEST_INTERVAL_S
        await validators[3].start()
        await assert_equal(validators, last + 1)
