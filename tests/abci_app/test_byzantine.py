"""Validators that lie, on real engines: one that proposes garbage, and one that signs two blocks of one height."""

import asyncio
import base64
from pathlib import Path

import pytest

from abci_app.params import STAKE_PER_POWER, Params
from abci_app.records import Validator as ValidatorRecord
from abci_app.tables import VALIDATORS
from primitives.amounts import slash_amount
from primitives.encoding import decode
from tests.abci_app.kit import POWER, operator_of
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

pytestmark = pytest.mark.network


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


async def validator_record(through: Validator, index: int) -> ValidatorRecord:
    key = VALIDATORS.key(operator_of(index).address).hex()
    answer = await through.engine.call("abci_query", path="key", data=key)
    return decode(base64.b64decode(answer["response"]["value"]), ValidatorRecord)


async def evidence_in(through: Validator, first: int, last: int) -> int:
    """How many pieces of evidence stand in these blocks."""
    count = 0
    for height in range(first, last + 1):
        block = (await through.engine.call("block", height=str(height)))["block"]
        count += len(block["evidence"]["evidence"] or ())
    return count


async def test_a_double_signature_on_a_real_network_is_slashed_once_and_its_validator_leaves(tmp_path: Path) -> None:
    """A second machine with the same consensus key and no memory of what the first one signed."""
    validators = await make_validators(tmp_path)
    twin = await another_machine(tmp_path / "twin", validators[:3], key_of=validators[3])
    payments = Payments(validators[0])
    async with running([*validators, twin]):
        async with asyncio.timeout(DEADLINE_S):
            await payments.pay()
            while not (await validator_record(validators[0], 3)).jailed:
                await payments.pay()
        for _ in range(5):
            last = await payments.pay()
        assert await evidence_in(validators[0], 1, last) >= 1
        bond = POWER * STAKE_PER_POWER
        assert (await validator_record(validators[0], 3)).bond == bond - slash_amount(
            bond, Params().slash_double_sign_ppm
        )
        left = (await validators[0].engine.call("validators", height=str(last)))["validators"]
        assert len(left) == 3
        await assert_equal(validators[:3], last)
