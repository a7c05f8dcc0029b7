"""What DA layer and storage are told about the chain, and what becomes of data when its height has passed."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from abci_app import tables
from abci_app.records import Account, Blob, Deal
from abci_app.rules.blobs import blob_key, blob_price
from abci_app.state import Branch
from da_layer.errors import ChainUnavailable
from node import services as services_module
from node.chain_sources import PROMISE_BLOCKS, ChainDeals, ChainForBlobs
from node.services import Services
from primitives.blobs import BlobHeader, BlobPromise
from storage.errors import SourceUnavailable
from tests.node.conftest import ALICE, BOB, CHAIN_ID, Made, Served

MIB = 1024 * 1024
HEADER = BlobHeader(1, "isal", 1, 3, MIB, MIB, b"r" * 32)
PROMISE = BlobPromise(CHAIN_ID, HEADER, "job/1", 101, 1, BOB.address)


@pytest.fixture
def blobs(served: Served) -> ChainForBlobs:
    return ChainForBlobs(served.node.state, served.node.follower)


@pytest.fixture
def deals(served: Served) -> ChainDeals:
    return ChainDeals(served.node.state, served.node.follower)


async def followed(served: Served, height: int) -> None:
    await served.node.follower.wait_for_height(height, 5.0)
    assert served.node.follower.height == height


async def set_balance(served: Served, balance: int) -> None:
    def put(branch: Branch) -> None:
        tables.ACCOUNTS.put(branch, Account(balance=balance), BOB.address)

    await followed(served, served.engine.deliver([], change=put))


async def price(served: Served, promise: BlobPromise) -> int:
    params = await served.node.state.get(tables.PARAMS)
    assert params is not None
    return blob_price(promise.header.size, promise.expiry_height - served.engine.height, params)


async def test_publisher_who_can_pay_may_publish_and_may_ask_again(served: Served, blobs: ChainForBlobs) -> None:
    await set_balance(served, await price(served, PROMISE))
    assert await blobs.may_publish(PROMISE) is None
    assert await blobs.may_publish(PROMISE) is None


async def test_one_balance_does_not_pay_for_two_open_promises(served: Served, blobs: ChainForBlobs) -> None:
    await set_balance(served, await price(served, PROMISE))
    other = replace(PROMISE, namespace="job/2")
    assert await blobs.may_publish(PROMISE) is None
    assert "promised for blobs that are not certified yet" in str(await blobs.may_publish(other))
    blob = Blob(HEADER, PROMISE.namespace, BOB.address, 2, PROMISE.expiry_height, 1, ())

    def certify(branch: Branch) -> None:
        tables.BLOBS.put(branch, blob, *blob_key(HEADER.commitment, BOB.address, PROMISE.namespace))

    await followed(served, served.engine.deliver([], change=certify))
    assert await blobs.may_publish(other) is None


async def test_one_balance_does_not_pay_for_promises_that_come_at_once(served: Served, blobs: ChainForBlobs) -> None:
    await set_balance(served, await price(served, PROMISE))
    promises = [replace(PROMISE, namespace=f"job/{number}") for number in range(8)]
    answers = await asyncio.gather(*(blobs.may_publish(promise) for promise in promises))
    assert answers.count(None) == 1


async def test_a_blob_on_chain_does_not_pay_for_promises_of_it_until_other_heights(
    served: Served, blobs: ChainForBlobs
) -> None:
    await set_balance(served, await price(served, PROMISE))
    blob = Blob(HEADER, PROMISE.namespace, BOB.address, 2, 5, 1, ())

    def certify(branch: Branch) -> None:
        tables.BLOBS.put(branch, blob, *blob_key(HEADER.commitment, BOB.address, PROMISE.namespace))

    await followed(served, served.engine.deliver([], change=certify))
    assert await blobs.may_publish(replace(PROMISE, expiry_height=PROMISE.expiry_height - 1)) is None
    assert "promised for blobs" in str(
        await blobs.may_publish(replace(PROMISE, expiry_height=PROMISE.expiry_height - 2))
    )


async def test_promise_that_never_lands_is_forgotten_after_a_while(served: Served, blobs: ChainForBlobs) -> None:
    lasting = replace(PROMISE, expiry_height=PROMISE_BLOCKS + 100)
    await set_balance(served, await price(served, lasting))
    assert await blobs.may_publish(lasting) is None
    for _ in range(PROMISE_BLOCKS + 1):
        height = served.engine.deliver([])
    await followed(served, height)
    assert await blobs.may_publish(replace(lasting, namespace="job/2")) is None


@pytest.mark.parametrize("expiry_height", [0, 1, 2 * 10**5, 2**62])
async def test_expiry_out_of_bounds_is_refused(blobs: ChainForBlobs, expiry_height: int) -> None:
    assert "is not within" in str(await blobs.may_publish(replace(PROMISE, expiry_height=expiry_height)))


async def test_stranger_without_money_is_refused(blobs: ChainForBlobs) -> None:
    assert "the publisher has 0" in str(await blobs.may_publish(replace(PROMISE, publisher=b"s" * 20)))


async def test_service_sets_by_version(blobs: ChainForBlobs, made: Made) -> None:
    members = await blobs.service_set(1)
    assert members is not None
    assert members.members[0].operator == made.identity.operator
    for version in (0, 2, -1, 2**63, 2**70):
        assert await blobs.service_set(version) is None


def deal(number: int, **change: object) -> Deal:
    base = Deal(
        id=number,
        owner=ALICE.address,
        key=b"k" * 32,
        root=b"r" * 32,
        size=1,
        tier="hot",
        series="",
        replicas=1,
        duration=10,
        providers=(BOB.address,),
        status="pending",
        escrow=0,
        price_per_block=1,
        created_height=1,
        end_height=1000,
    )
    return replace(base, **change)


async def put_deal(served: Served, new: Deal, old: Deal | None = None) -> None:
    def put(branch: Branch) -> None:
        if old is not None:
            tables.DEALS_BY_END.delete(branch, old.end_height, old.id)
        tables.DEALS.put(branch, new, new.id)
        if new.status in ("pending", "active"):
            tables.DEALS_BY_END.put(branch, tables.Marker(), new.end_height, new.id)

    await followed(served, served.engine.deliver([], change=put))


async def test_provider_sees_its_living_deals_as_they_change(served: Served, deals: ChainDeals) -> None:
    pending, others = deal(1), deal(2, providers=(ALICE.address,))
    await put_deal(served, pending)
    await put_deal(served, others)
    assert [(terms.id, terms.status) for terms in await deals.for_provider(BOB.address)] == [(1, "pending")]
    active = deal(1, status="active")
    await put_deal(served, active, pending)
    assert [(terms.id, terms.status) for terms in await deals.for_provider(BOB.address)] == [(1, "active")]
    longer = deal(1, status="active", end_height=2000)
    await put_deal(served, longer, active)
    assert [terms.end_height for terms in await deals.for_provider(BOB.address)] == [2000]
    over = deal(1, status="deleted", closed_height=7)
    await put_deal(served, over, longer)
    assert await deals.for_provider(BOB.address) == []
    gone = await deals.get(1)
    assert gone is not None
    assert (gone.status, gone.closed_height) == ("deleted", 7)
    assert await deals.get(3) is None


async def test_chain_that_does_not_answer_is_said_and_nothing_is_invented(
    served: Served, blobs: ChainForBlobs, deals: ChainDeals
) -> None:
    served.engine.down = True
    with pytest.raises(ChainUnavailable):
        await blobs.may_publish(PROMISE)
    with pytest.raises(ChainUnavailable):
        await blobs.service_set(1)
    with pytest.raises(SourceUnavailable):
        await deals.for_provider(BOB.address)
    with pytest.raises(SourceUnavailable):
        await deals.get(1)


async def test_house_is_kept_at_every_height_also_after_an_interruption(
    services: Services, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[int] = []
    monkeypatch.setattr(services.rows, "prune", lambda height: pruned.append(height) or 0)
    for _ in range(3):
        height = served.engine.deliver([])
        async with asyncio.timeout(10):
            while services.storage.height < height:
                await asyncio.sleep(0.01)
        assert pruned[-1] == height
    assert services.usage()["da"] == services.usage()["storage"] == 0


async def test_two_processes_do_not_share_one_store(services: Services, made: Made, tmp_path: Path) -> None:
    with pytest.raises(services_module.SetupError, match="storage"):
        Services(made.home)
