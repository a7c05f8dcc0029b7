"""Validators that lie, on real engines: they propose garbage, waste their blocks, or sign two blocks of one height."""

import asyncio
import base64
from pathlib import Path

import pytest

from abci_app.execution import PENDING_WINDOW
from abci_app.ledger import account_of, conservation_gap
from abci_app.messages import Transfer, Unbond
from abci_app.params import STAKE_PER_POWER, Params
from abci_app.proposals import size_in_block
from abci_app.records import Account
from abci_app.records import Validator as ValidatorRecord
from abci_app.store import Store
from abci_app.tables import ACCOUNTS, UNBONDINGS, VALIDATORS
from primitives.amounts import slash_amount
from primitives.encoding import decode
from primitives.keys import PrivateKey
from tests.abci_app.kit import ALICE, BOB, OPERATOR, POWER, RICH, operator_of, signed, transfer
from tests.abci_app.lax_application import FIRST_HEIGHT, LAST_HEIGHT, garbage
from tests.abci_app.validators import (
    DEADLINE_S,
    Payments,
    Validator,
    another_machine,
    assert_equal,
    make_validators,
    running,
)
from tests.abci_app.wasteful_application import NUM_WASTE

pytestmark = pytest.mark.network

SMALL_BLOCK_BYTES = 34_000
ENGINE_BYTES = 15_000
"""What CometBFT keeps at most of a block for header and commit of four validators: 3.4 KB each in v0.38.26, as it
reckons with long signatures."""


async def block_txs(validator: Validator, height: int) -> list[bytes]:
    block = (await validator.engine.call("block", height=str(height)))["block"]
    return [base64.b64decode(tx) for tx in block["data"]["txs"] or ()]


async def test_what_a_hostile_proposer_adds_never_gets_into_a_block_and_the_others_go_on(tmp_path: Path) -> None:
    """One of four proposes garbage, repeats and broken signatures whenever it is its turn; three refuse."""
    validators = await make_validators(tmp_path, modules={3: "tests.abci_app.lax_application"})
    payments = Payments(validators[0])
    async with running(validators):
        last = 0
        while last <= LAST_HEIGHT + 2:
            last = await payments.pay()
        await assert_equal(validators, last)
        bad = {tx for height in range(FIRST_HEIGHT, LAST_HEIGHT + 1) for tx in garbage(height)}
        found = [tx for height in range(1, last + 1) for tx in await block_txs(validators[0], height)]
        assert len(found) == len(set(found)) == payments.sent
        assert not bad & set(found)
        refused = [one.engine.log().count("prevote step: state machine rejected") for one in validators[:3]]
        assert all(count > 0 for count in refused), refused


async def test_a_proposer_that_wastes_its_blocks_costs_the_others_nothing_but_room(tmp_path: Path) -> None:
    """What it adds decodes, so its blocks are decided; honest payments get into them and into all others, once."""
    validators = await make_validators(tmp_path, modules={3: "tests.abci_app.wasteful_application"})
    payments, wasted = Payments(validators[0]), 0
    async with running(validators), asyncio.timeout(DEADLINE_S):
        last = 0
        while wasted < 2:
            last = await payments.pay()
            results = (await validators[0].engine.call("block_results", height=str(last)))["txs_results"]
            assert len(results) == len(await block_txs(validators[0], last))
            assert sum(result.get("code", 0) == 0 for result in results) == 1, "the payment, once"
            wasted += len(results) >= NUM_WASTE + 2
        await assert_equal(validators, last)
    with Store(validators[0].app.data) as store:
        assert account_of(store.committed, BOB.address) == Account(balance=RICH + 5 * payments.sent, nonce=0)
        assert conservation_gap(store.committed) == 0


async def query(through: Validator, key: bytes) -> bytes:
    answer = await through.engine.call("abci_query", path="key", data=key.hex())
    return base64.b64decode(answer["response"]["value"])


async def validator_record(through: Validator, index: int) -> ValidatorRecord:
    return decode(await query(through, VALIDATORS.key(operator_of(index).address)), ValidatorRecord)


async def account(through: Validator, owner: PrivateKey) -> Account:
    return decode(await query(through, ACCOUNTS.key(owner.address)), Account)


async def evidence_heights(through: Validator, last: int) -> list[int]:
    """Of the blocks with evidence, up to `last`."""
    found = []
    for height in range(1, last + 1):
        block = (await through.engine.call("block", height=str(height)))["block"]
        found += [height] * bool(block["evidence"]["evidence"])
    return found


async def num_validators(through: Validator, height: int) -> int:
    return len((await through.engine.call("validators", height=str(height)))["validators"])


async def take_out(through: Validator, index: int, amount: int) -> None:
    """Have the validator with this index take `amount` off its bond; Bob pays its fee."""
    operator = operator_of(index)
    txs = [signed(BOB, 0, Transfer(to=operator.address, amount=10_000)), signed(operator, 0, Unbond(amount=amount))]
    for tx in txs:
        result = await through.engine.call("broadcast_tx_commit", tx=base64.b64encode(tx).decode())
        assert result["tx_result"].get("code", 0) == 0, result


async def test_a_double_signature_on_a_real_network_is_slashed_once_and_its_validator_leaves(tmp_path: Path) -> None:
    """A second machine with the same consensus key and no memory of what the first one signed. The validator was taking
    stake out when it happened."""
    validators = await make_validators(tmp_path)
    twin = await another_machine(tmp_path / "twin", validators[:3], key_of=validators[3])
    payments = Payments(validators[0])
    taken_out = 40 * STAKE_PER_POWER
    async with running(validators):
        await take_out(validators[0], 3, taken_out)
        async with running([twin]), asyncio.timeout(DEADLINE_S):
            while not (await validator_record(validators[0], 3)).jailed:
                await payments.pay()
            for _ in range(5):
                last = await payments.pay()
        first, *_ = await evidence_heights(validators[0], last)
        assert await num_validators(validators[0], first + 1) == 4
        assert await num_validators(validators[0], first + 2) == 3
        assert await num_validators(validators[0], last) == 3
        await assert_equal(validators[:3], last)
    ppm = Params().slash_double_sign_ppm
    bond = POWER * STAKE_PER_POWER - taken_out
    with Store(validators[0].app.data) as store:
        record = VALIDATORS.get(store.committed, operator_of(3).address)
        assert record is not None
        assert record.bond == bond - slash_amount(bond, ppm)
        [unbonding] = [entry for _, entry in UNBONDINGS.iterate(store.committed)]
        assert unbonding.amount == taken_out - slash_amount(taken_out, ppm)
        assert conservation_gap(store.committed) == 0


async def flood(through: Validator, sender: PrivateKey, nonce: int, stop: asyncio.Event) -> None:
    """Keep many payments of about a kilobyte waiting, the first with this nonce.

    Fewer than one account may: a node that is a block behind would refuse those at the end of the window, and then lack
    them when its turn comes.
    """
    committed = nonce
    while not stop.is_set():
        if nonce < committed + PENDING_WINDOW // 2:
            tx = transfer(nonce, sender=sender, to=OPERATOR, num_messages=30)
            answer = await through.engine.call("broadcast_tx_sync", tx=base64.b64encode(tx).decode())
            assert answer["code"] == 0, answer
            nonce += 1
        else:
            await asyncio.sleep(0.02)
            committed = (await account(through, sender)).nonce


async def test_full_blocks_leave_room_for_evidence_and_all_accept_them(tmp_path: Path) -> None:
    """CometBFT stops a proposer whose application returns more than the evidence leaves room for.

    The one that signs twice has so little power that its turn is far: its twin would propose an empty block.
    """
    validators = await make_validators(tmp_path, block_bytes=SMALL_BLOCK_BYTES)
    twin = await another_machine(tmp_path / "twin", validators[:3], key_of=validators[3])
    for one in [*validators, twin]:
        one.engine.set_config(timeout_commit='"250ms"')
    stop = asyncio.Event()
    async with running(validators):
        await take_out(validators[0], 3, POWER * STAKE_PER_POWER - Params().min_validator_bond)
        await validators[0].reach(await validators[0].engine.height_above(0) + len(validators) + 2)
        floods = [asyncio.create_task(flood(validators[0], *of, stop)) for of in ((ALICE, 0), (BOB, 1))]
        async with running([twin]), asyncio.timeout(DEADLINE_S):
            while not (await validator_record(validators[0], 3)).jailed:
                await asyncio.sleep(0.05)
        stop.set()
        await asyncio.gather(*floods)
        last = await validators[0].engine.height_above(0)
        await assert_equal(validators[:3], last - 1)
        with_evidence = await evidence_heights(validators[0], last)
        sizes = [sum(map(size_in_block, await block_txs(validators[0], height))) for height in with_evidence]
        assert max(sizes) > 0.9 * (SMALL_BLOCK_BYTES - ENGINE_BYTES), f"blocks with evidence were not full: {sizes}"
