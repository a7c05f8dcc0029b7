"""Validators come and go by bonding, on real engines."""

import asyncio
import base64
from pathlib import Path

import pytest

from abci_app.messages import RegisterValidator, Transfer, Unbond
from abci_app.params import STAKE_PER_POWER
from node.engine_files import consensus_address, consensus_key, prove_possession
from tests.abci_app.kit import BOB, CHAIN_ID, POWER, operator_of, signed
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

FEES = 10**9
BOND = POWER * STAKE_PER_POWER


async def send(through: Validator, tx: bytes) -> int:
    """The height of its block."""
    result = await through.engine.call("broadcast_tx_commit", tx=base64.b64encode(tx).decode())
    assert result["tx_result"].get("code", 0) == 0, result
    return int(result["height"])


def address_of(validator: Validator) -> str:
    """CometBFT's name of its consensus key, upper-case hex."""
    return consensus_address(consensus_key(validator.app.home)).hex().upper()


async def signers(through: Validator, height: int) -> set[str]:
    """Whose signatures over this block are in the chain."""
    commit = (await through.engine.call("commit", height=str(height)))["signed_header"]["commit"]
    return {item["validator_address"] for item in commit["signatures"] if item["block_id_flag"] == 2}


async def pay_until_signed_by(names: set[str], payments: Payments, through: Validator) -> int:
    """Make blocks until one is signed by all of `names`; returns the newest height."""
    async with asyncio.timeout(DEADLINE_S):
        while not names <= await signers(through, last := await payments.pay()):
            pass
    return last


async def test_one_bonds_and_signs_another_unbonds_and_leaves_and_the_chain_goes_on(tmp_path: Path) -> None:
    validators = await make_validators(tmp_path)
    newcomer = await another_machine(tmp_path / "newcomer", validators)
    payments, leaver = Payments(validators[0]), validators[3]
    async with running([*validators, newcomer]):
        await payments.pay()
        proof = prove_possession(newcomer.app.home, CHAIN_ID, BOB.address)
        key = consensus_key(newcomer.app.home)
        await send(
            validators[0], signed(BOB, 0, RegisterValidator(consensus_key=key, possession_proof=proof, bond=BOND))
        )
        await pay_until_signed_by({address_of(newcomer)}, payments, validators[0])

        operator = operator_of(3)
        await send(validators[0], signed(BOB, 1, Transfer(to=operator.address, amount=FEES)))
        height = await send(validators[0], signed(operator, 0, Unbond(amount=BOND)))
        while await payments.pay() < height + 3:
            pass
        left = await validators[0].engine.call("validators", height=str(height + 3))
        names = {item["address"] for item in left["validators"]}
        assert names == {address_of(one) for one in (*validators[:3], newcomer)}

        await leaver.kill()
        everybody = [*validators[:3], newcomer]
        last = await pay_until_signed_by({address_of(newcomer)}, payments, validators[0])
        await assert_equal(everybody, last)
