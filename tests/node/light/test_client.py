"""From trust to a height: steps in between, memory, witnesses, expiry, and chains that were never signed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from node.errors import NodeUnreachable
from node.light.blocks import LightBlock
from node.light.client import LightClient
from node.light.errors import (
    BlockMissing,
    Divergence,
    InvalidBlock,
    LightError,
    StaleAnswer,
    TrustError,
    TrustExpired,
)
from node.light.hashes import NS_PER_S, header_hash, validators_hash
from node.light.store import KEPT, TrustedStore
from node.light.trust import trust_genesis
from node.light.verify import Trusted, TrustRules
from tests.node.light.chain import START_NS, MemorySource, Signer, make_chain, make_header, set_of, sign
from tests.node.light.recorded import CHAIN_ID as RECORDED_CHAIN
from tests.node.light.recorded import DOCUMENT, LAST_HEIGHT, now_ns
from tests.node.light.recorded import block as recorded_block

CHAIN = "chain-1"
LAST = 40
POOL = [Signer(f"validator {index}") for index in range(LAST + 8)]
SETS = [POOL[height // 2 : height // 2 + 4] for height in range(LAST + 1)]
"""One of four validators is replaced every other block."""
BLOCKS = make_chain(CHAIN, SETS)
GENESIS = Trusted(0, START_NS, set_of(SETS[0]), validators_hash(set_of(SETS[0])), b"")
RULES = TrustRules(trusting_period_s=1000.0, unbonding_blocks=2000)
FORGERS = [Signer(f"forger {index}", power=1000) for index in range(4)]


def light(
    *sources: MemorySource,
    trusted: Sequence[Trusted] = (GENESIS,),
    pinned: tuple[int, bytes] | None = None,
    store: TrustedStore | None = None,
    rules: TrustRules = RULES,
    age_s: int = 5,
) -> LightClient:
    """A client whose clock shows `age_s` after the last block."""
    now = START_NS + (LAST + age_s) * NS_PER_S
    return LightClient(CHAIN, sources, rules=rules, trusted=trusted, pinned=pinned, store=store, now_ns=lambda: now)


def hash_at(height: int) -> bytes:
    return header_hash(BLOCKS[height].header)


async def test_a_recorded_chain_is_verified_from_its_genesis_alone() -> None:
    genesis = trust_genesis(json.dumps(DOCUMENT["genesis"]).encode())
    assert (genesis.chain_id, genesis.rules) == (RECORDED_CHAIN, TrustRules(200.0, 2000))
    for height in range(1, LAST_HEIGHT + 1):
        source = MemorySource({height: recorded_block(height)})
        client = LightClient(RECORDED_CHAIN, [source], rules=genesis.rules, trusted=[genesis.trusted], now_ns=now_ns)
        verified = await client.verify(height)
        assert verified.block_hash == header_hash(recorded_block(height).header)
        assert (verified.height, verified.total_power) == (height, 400 if height < 6 else 440)


async def test_a_far_block_is_reached_through_blocks_in_between() -> None:
    source = MemorySource(BLOCKS)
    verified = await light(source).verify(LAST)
    assert (verified.block_hash, verified.signed_power, verified.total_power) == (hash_at(LAST), 40, 40)
    assert 2 < len(source.asked) < LAST
    assert source.asked[0] == LAST


async def test_a_near_block_takes_one_step() -> None:
    source = MemorySource(BLOCKS)
    await light(source).verify(4)
    assert source.asked == [4]


async def test_every_height_is_reached_from_a_trusted_hash_below() -> None:
    for height in range(20, LAST + 1):
        client = light(MemorySource(BLOCKS), trusted=(), pinned=(20, hash_at(20)))
        assert (await client.verify(height)).block_hash == hash_at(height)


async def test_a_chain_of_other_validators_is_refused() -> None:
    forged = make_chain(CHAIN, [FORGERS] * (LAST + 1))
    with pytest.raises(InvalidBlock, match="not the one that the header below it names"):
        await light(MemorySource(forged)).verify(LAST)


async def test_a_forged_end_on_a_true_chain_is_refused() -> None:
    forged = BLOCKS | {LAST: sign(make_header(CHAIN, LAST, FORGERS), FORGERS)}
    with pytest.raises(InvalidBlock, match="block 40"):
        await light(MemorySource(forged)).verify(LAST)


@pytest.mark.parametrize(("absent", "accepted"), [(1, True), (2, False)])
async def test_it_takes_more_than_two_thirds_of_the_power(absent: int, accepted: bool) -> None:
    header = BLOCKS[3].header
    source = MemorySource({3: sign(header, SETS[2], absent=SETS[2][-absent:])})
    if accepted:
        assert (await light(source).verify(3)).signed_power == 30
        return
    with pytest.raises(InvalidBlock, match="20 of 40 power"):
        await light(source).verify(3)


async def test_exactly_two_thirds_are_not_enough() -> None:
    signers = SETS[0][:3]
    trusted = Trusted(0, START_NS, set_of(signers), validators_hash(set_of(signers)), b"")
    source = MemorySource({1: sign(make_header(CHAIN, 1, signers), signers, absent=signers[:1])})
    with pytest.raises(InvalidBlock, match="20 of 30 power"):
        await light(source, trusted=[trusted]).verify(1)


async def test_exactly_a_third_of_the_trusted_power_does_not_carry_trust_on() -> None:
    old, new = POOL[:3], [POOL[2], *FORGERS]
    trusted = Trusted(1, START_NS, set_of(old), validators_hash(set_of(old)), b"")
    source = MemorySource({3: sign(make_header(CHAIN, 3, new), new)})
    with pytest.raises(BlockMissing):  # it wants block 2
        await light(source, trusted=[trusted]).verify(3)
    assert source.asked == [3, 2]


async def test_one_validator_counts_once_for_the_trusted_power() -> None:
    block = sign(make_header(CHAIN, 5, SETS[0]), SETS[0])
    votes = (block.commit.signatures[0],) * 4
    source = MemorySource({5: replace(block, commit=replace(block.commit, signatures=votes))})
    with pytest.raises(InvalidBlock, match="signed twice"):
        await light(source).verify(5)


async def test_what_was_verified_is_where_the_next_time_starts(tmp_path: Path) -> None:
    await light(MemorySource(BLOCKS), store=TrustedStore(tmp_path, CHAIN)).verify(LAST - 1)
    source = MemorySource(BLOCKS)
    await light(source, trusted=(), store=TrustedStore(tmp_path, CHAIN)).verify(LAST)
    assert source.asked == [LAST]
    again = MemorySource({})
    assert (await light(again, trusted=(), store=TrustedStore(tmp_path, CHAIN)).verify(LAST)).height == LAST
    assert not again.asked


async def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    client = light(MemorySource(BLOCKS), store=TrustedStore(tmp_path, CHAIN))
    for height in range(1, LAST + 1):
        await client.verify(height)
    kept = [block.height for block in TrustedStore(tmp_path, CHAIN).blocks]
    assert kept == list(range(LAST - KEPT + 1, LAST + 1))


@pytest.mark.parametrize("place", [0, 0.3, 0.5, 0.9])
async def test_a_damaged_store_is_named_and_no_node_is_blamed(tmp_path: Path, place: float) -> None:
    store = TrustedStore(tmp_path, CHAIN)
    await light(MemorySource(BLOCKS), store=store).verify(3)
    data = bytearray(store.path.read_bytes())
    data[int(place * len(data))] ^= 1
    store.path.write_bytes(data)
    with pytest.raises(TrustError, match="is damaged"):
        TrustedStore(tmp_path, CHAIN)


async def test_a_store_of_another_chain_of_the_same_name_is_named(tmp_path: Path) -> None:
    store = TrustedStore(tmp_path, CHAIN)
    store.bind(b"one", RULES)
    await light(MemorySource(BLOCKS), store=store).verify(3)
    again = TrustedStore(tmp_path, CHAIN)
    assert again.rules == RULES
    with pytest.raises(TrustError, match="another chain with the same name"):
        again.bind(b"other", RULES)


async def test_nothing_trusted_says_what_to_give() -> None:
    with pytest.raises(TrustError, match="--genesis"):
        await light(MemorySource(BLOCKS), trusted=()).verify(3)


async def test_a_height_below_all_that_is_trusted_is_refused() -> None:
    with pytest.raises(TrustError, match="from height 20 on"):
        await light(MemorySource(BLOCKS), trusted=(), pinned=(20, hash_at(20))).verify(5)


async def test_a_wrong_trusted_hash_is_refused() -> None:
    with pytest.raises(TrustError, match="not the trusted"):
        await light(MemorySource(BLOCKS), trusted=(), pinned=(20, hash_at(19))).verify(30)


async def test_old_trust_is_refused_with_what_to_do() -> None:
    with pytest.raises(TrustExpired, match="--trust-height"):
        await light(MemorySource(BLOCKS), age_s=1000).verify(3)


async def test_a_newest_block_that_is_old_is_refused() -> None:
    client = light(MemorySource(BLOCKS), age_s=61)
    verified = await client.verify(LAST)
    with pytest.raises(StaleAnswer, match="61 s ago"):
        client.check_newest(verified)
    client = light(MemorySource(BLOCKS), age_s=59)
    client.check_newest(await client.verify(LAST))


# --- several nodes ------------------------------------------------------------------------------------------------
async def test_witnesses_that_agree_are_counted() -> None:
    sources = [MemorySource(BLOCKS, f"http://{name}") for name in ("one", "two", "three")]
    sources[2].down = True
    assert (await light(*sources).verify(3)).num_witnesses == 1


async def test_a_second_chain_with_enough_signatures_is_an_attack_that_names_both(tmp_path: Path) -> None:
    def fork(block: LightBlock) -> LightBlock:
        return sign(replace(block.header, app_hash=b"other"), SETS[block.height - 1])

    first, second = MemorySource(BLOCKS, "http://one"), MemorySource(BLOCKS, "http://two")
    second.lie = fork
    store = TrustedStore(tmp_path, CHAIN)
    with pytest.raises(Divergence, match=r"http://one.*http://two.*both are signed"):
        await light(first, second, store=store).verify(3)
    assert not store.blocks


async def test_a_witness_with_an_unsigned_block_is_named() -> None:
    first, second = MemorySource(BLOCKS, "http://one"), MemorySource(BLOCKS, "http://two")
    second.lie = lambda block: replace(block, header=replace(block.header, app_hash=b"other"))
    with pytest.raises(Divergence, match="not even signed"):
        await light(first, second).verify(3)


async def test_the_next_node_is_asked_when_the_first_does_not_answer() -> None:
    first, second = MemorySource(BLOCKS, "http://one"), MemorySource(BLOCKS, "http://two")
    first.down = True
    assert (await light(first, second).verify(3)).height == 3
    second.down = True
    with pytest.raises(NodeUnreachable):
        await light(first, second).verify(4)


async def test_a_node_that_forges_every_block_on_the_way_is_refused() -> None:
    source = MemorySource(BLOCKS)
    source.lie = lambda block: sign(make_header(CHAIN, block.height, FORGERS), FORGERS)
    with pytest.raises(LightError):
        await light(source).verify(LAST)
    assert len(source.asked) < LAST
