"""Both processes of a validator die at every place where a crash could matter, and every time it goes on.

CometBFT's own fail points (FAIL_TEST_INDEX=n exits at the n-th call of fail.Fail since the start: ten for each height)
and ours (`abci_app.failpoints`).
"""

import asyncio
import base64
import re
from pathlib import Path

import pytest

from abci_app.failpoints import FAIL_POINTS, VARIABLE
from abci_app.records import Account
from abci_app.tables import ACCOUNTS
from primitives.encoding import decode
from tests.abci_app.kit import BOB, RICH
from tests.abci_app.validators import (
    DEADLINE_S,
    Payments,
    Validator,
    assert_equal,
    make_validators,
    running,
)

pytestmark = pytest.mark.network

SITES_PER_HEIGHT = 10
ENGINE_INDICES = range(3 * SITES_PER_HEIGHT)
"""Three heights, every place."""
GENESIS_POINTS = [name for name in FAIL_POINTS if name.split(".")[0] == "init_chain"]
BLOCK_POINTS = [name for name in FAIL_POINTS if name.split(".")[0] in ("finalize_block", "commit")]


def reach_calls() -> set[str]:
    """The places that the sources name."""
    sources = Path(__file__).parents[2].joinpath("abci_app").rglob("*.py")
    return {name for path in sources for name in re.findall(r'\breach\("([a-z_.]+)"\)', path.read_text())}


def test_every_fail_point_is_somewhere_in_the_code_and_every_place_is_a_known_one() -> None:
    assert reach_calls() == set(FAIL_POINTS)


async def pay_exactly(validator: Validator, payments: Payments) -> None:
    """Nothing lost, nothing twice."""
    answer = await validator.engine.call("abci_query", path="key", data=ACCOUNTS.key(BOB.address).hex())
    account = decode(base64.b64decode(answer["response"]["value"]), Account)
    assert account.balance == RICH + 5 * payments.sent


async def die_in_engine(victim: Validator, index: int) -> None:
    """Start it so that CometBFT exits at fail point `index`, and wait until it has."""
    before = len(victim.engine.log())
    await victim.start(engine={"FAIL_TEST_INDEX": str(index)})
    async with asyncio.timeout(DEADLINE_S):
        await victim.engine.process.wait()
    assert f"*** fail-test {index} ***" in victim.engine.log()[before:]
    await victim.kill()


async def die_in_application(victim: Validator, point: str) -> None:
    """Start it so that the application dies at `point`, and wait until it has."""
    await victim.start(app={VARIABLE: point})
    async with asyncio.timeout(DEADLINE_S):
        await victim.app.process.wait()
    assert victim.app.process.returncode == -9
    await victim.kill()


async def test_one_of_four_validators_dies_at_every_fail_point_of_the_engine(tmp_path: Path) -> None:
    validators = await make_validators(tmp_path)
    victim, payments, stop = validators[3], Payments(validators[0]), asyncio.Event()
    async with running(validators):
        load = asyncio.create_task(payments.keep_paying(stop))
        await victim.reach(2)
        await victim.kill()
        for index in ENGINE_INDICES:
            await die_in_engine(victim, index)
        await victim.start()
        stop.set()
        await load
        last = await payments.pay()
        await victim.reach(last + 1)
        await assert_equal(validators, last)
        for one in validators:
            await pay_exactly(one, payments)


async def test_a_single_validator_dies_at_every_fail_point_of_the_engine_and_of_the_application(tmp_path: Path) -> None:
    """Nobody else has the blocks then: what it wrote is all there is."""
    [single] = await make_validators(tmp_path, 1)
    payments = Payments(single)
    try:
        for point in GENESIS_POINTS:
            await die_in_application(single, point)
        for point in BLOCK_POINTS:
            for count in (1, 3):
                await die_in_application(single, f"{point}:{count}")
        for index in range(SITES_PER_HEIGHT):
            await die_in_engine(single, index)
            await single.start()
            last = await payments.pay()
            await single.kill()
        await single.start()
        await pay_exactly(single, payments)
        await assert_equal([single], last)
    finally:
        await single.kill()


@pytest.mark.parametrize("point", BLOCK_POINTS)
async def test_an_application_dies_in_the_very_first_block(tmp_path: Path, point: str) -> None:
    """Genesis is written with the first block, or not at all."""
    [single] = await make_validators(tmp_path, 1)
    payments = Payments(single)
    try:
        await die_in_application(single, point)
        await single.start()
        last = await payments.pay()
        await assert_equal([single], last)
        await pay_exactly(single, payments)
    finally:
        await single.kill()
