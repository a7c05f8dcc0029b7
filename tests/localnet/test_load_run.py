"""A whole load against an engine that loses, refuses and fails what it is told to: everything is accounted for."""

import asyncio

import psutil
import pytest

from localnet.load import accounting, drive
from localnet.load.drive import Pace
from localnet.load.errors import LoadError
from localnet.load.offer import Offer, spread
from localnet.load.results import LoadResult
from localnet.load.run import run_load
from localnet.load.usage import Measured
from tests.localnet.fake_engine import BLOCK_S, FakeEngine, running

TXS = [b"tx%04d" % number for number in range(1000)]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "GIVE_UP_S", 0.4)
    monkeypatch.setattr(drive, "STALL_S", 0.5)


async def load(
    *engines: FakeEngine, rate: float | None = 300.0, txs: list[bytes] = TXS, seconds: float = 0.5
) -> LoadResult:
    """Sent over two connections, at most 100 on the way."""
    offer = Offer(kind="test", lanes=spread(txs, 10, 2), messages=3)
    pace = Pace(rate=rate, in_flight=100, seconds=seconds, warm_up_s=0.1)
    measured = Measured(apps=[], engines=[psutil.Process()])
    return await run_load(offer, pace, [engine.url for engine in engines], measured)


async def test_everything_sent_is_found_and_measured() -> None:
    async with running(FakeEngine()) as engine:
        result = await load(engine)
    assert result.clean
    assert result.committed == result.submitted == sum(len(block) for block in engine.blocks)
    assert not result.ran_out
    assert result.window_s >= 0.5
    assert result.committed_tps == pytest.approx(300, rel=0.4)
    assert result.messages_per_s == pytest.approx(3 * result.committed_tps)
    assert 0 < result.finality_p50_s <= result.finality_p95_s <= result.finality_p99_s < 1.0
    assert BLOCK_S * 0.9 <= result.block_interval_median_s <= result.block_interval_max_s < 1.0
    assert result.txs_per_block_max <= max(len(block) for block in engine.blocks)
    assert result.cpu_s_app == 0.0
    assert result.cpu_s_engine > 0.0
    assert (result.nodes, result.connections, result.rate, result.tx_bytes) == (1, 2, 300.0, 6.0)


async def test_lost_refused_and_failed_transactions_are_told_apart_and_add_up() -> None:
    engine = FakeEngine(lost=TXS[5:8], refused=TXS[20:25], failed=TXS[40:42])
    async with running(engine):
        result = await load(engine)
    assert (result.lost, result.refused, result.failed) == (3, 5, 2)
    assert result.committed == result.submitted - 8 == sum(len(block) for block in engine.blocks)
    assert result.reasons == {"Internal error: full": 5, "code 7: no": 2}
    assert not result.clean


async def test_a_transaction_that_stands_in_two_blocks_counts_once() -> None:
    engine = FakeEngine()
    async with running(engine):
        engine._waiting.append(TXS[0])
        result = await load(engine)
    assert result.clean
    assert result.committed == sum(len(block) for block in engine.blocks) - 1


async def test_without_a_rate_as_many_go_as_may_be_on_the_way() -> None:
    many = [b"tx%06d" % number for number in range(20_000)]
    async with running(FakeEngine()) as engine:
        result = await load(engine, rate=None, txs=many)
    assert result.clean
    assert max(len(block) for block in engine.blocks) <= 100
    assert 600 < result.committed_tps <= 100 / BLOCK_S * 1.2


async def test_time_that_a_transaction_waits_to_be_sent_counts_as_finality() -> None:
    """Twice as many are due as may be on the way, so in the end they are sent late by half of the time."""
    many = [b"tx%06d" % number for number in range(20_000)]
    async with running(FakeEngine()) as engine:
        result = await load(engine, rate=2 * 100 / BLOCK_S, txs=many)
    assert result.clean
    assert result.offered_tps < 0.75 * 2 * 100 / BLOCK_S
    assert result.finality_p99_s > 3 * BLOCK_S


async def test_a_load_that_runs_out_of_transactions_says_so() -> None:
    async with running(FakeEngine()) as engine:
        result = await load(engine, txs=TXS[:100])
    assert result.ran_out
    assert result.clean
    assert result.submitted == 100
    assert result.window_s < 0.5


async def test_each_connection_goes_to_its_own_node() -> None:
    async with running(FakeEngine()) as first, running(FakeEngine()) as second:
        result = await load(first, second, txs=TXS[:100])
    assert sorted(tx for block in second.blocks for tx in block) == sorted(spread(TXS[:100], 10, 2)[1])
    assert result.nodes == 2
    assert result.lost == 50, "blocks are read from the first node, and these two do not share theirs"


# --- what ends a load ----------------------------------------------------------------------------------------------
async def test_no_blocks_end_the_load() -> None:
    async with running(FakeEngine(makes_blocks=False)) as engine:
        with pytest.raises(LoadError, match="no block for"):
            await load(engine)


async def test_a_node_that_is_not_there_ends_the_load() -> None:
    async with running(FakeEngine()) as engine:
        pass
    with pytest.raises(LoadError, match="cannot follow the blocks of"):
        await load(engine)


async def test_a_refused_subscription_ends_the_load_with_the_reason() -> None:
    async with running(FakeEngine(takes_subscriptions=False)) as engine:
        with pytest.raises(LoadError, match="max subscriptions reached"):
            await load(engine)


async def test_answers_of_another_form_end_the_load() -> None:
    async with running(FakeEngine(status=503)) as engine:
        with pytest.raises(LoadError, match=r"503 .*overloaded"):
            await load(engine)


async def test_an_engine_that_ends_in_the_middle_ends_the_load() -> None:
    async with running(FakeEngine()) as engine:
        work = asyncio.create_task(load(engine, seconds=20))
        while len(engine.blocks) < 6:
            await asyncio.sleep(BLOCK_S)
    with pytest.raises(LoadError, match=r"ended the subscription|closed a connection"):
        await work
