"""Hashes, signatures and rules against blocks of a real CometBFT; whatever is changed in them is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.light.blocks import ABSENT
from node.light.decoding import DecodingError
from node.light.errors import InvalidBlock, LightError, TrustExpired
from node.light.hashes import header_hash, in_order, validators_hash
from node.light.verify import Trusted, TrustRules, check_block, check_next
from tests.node.light.recorded import CHAIN_ID, LAST_HEIGHT, RULES, answers, block, now_ns, read

HEIGHTS = range(1, LAST_HEIGHT + 1)


@pytest.mark.parametrize("height", HEIGHTS)
def test_hashes_are_those_that_cometbft_reports(height: int) -> None:
    reported = answers(height)["commit"]["signed_header"]
    found = block(height)
    assert header_hash(found.header).hex().upper() == reported["commit"]["block_id"]["hash"]
    assert validators_hash(found.validators).hex().upper() == reported["header"]["validators_hash"]
    assert in_order(found.validators) == tuple(found.validators)


def test_the_next_header_names_the_hash_of_the_one_below() -> None:
    for height in HEIGHTS[1:]:
        assert block(height).header.last_block_id.hash == header_hash(block(height - 1).header)


def test_the_recording_has_a_change_of_power_and_an_absent_validator() -> None:
    assert len({block(height).header.validators_hash for height in HEIGHTS}) > 1
    assert any(vote.flag == ABSENT for height in HEIGHTS for vote in block(height).commit.signatures)


@pytest.mark.parametrize("trusted_height", HEIGHTS[:-1])
def test_every_height_leads_to_every_higher_one(trusted_height: int) -> None:
    trusted = Trusted.block(block(trusted_height))
    for height in range(trusted_height + 1, LAST_HEIGHT + 1):
        signed = check_next(trusted, block(height), CHAIN_ID, RULES, now_ns())
        assert signed * 3 > 2 * sum(validator.power for validator in block(height).validators)


def test_another_chain_id_is_refused() -> None:
    with pytest.raises(InvalidBlock, match="of chain"):
        check_block(block(3), "another-1")


def test_a_height_at_or_below_the_trusted_one_is_refused() -> None:
    for height in (4, 5):
        with pytest.raises(InvalidBlock, match="not above"):
            check_next(Trusted.block(block(5)), block(height), CHAIN_ID, RULES, now_ns())


def test_a_header_from_the_future_is_refused() -> None:
    early = block(4).header.time_ns - 11 * 10**9
    with pytest.raises(InvalidBlock, match="in the future"):
        check_next(Trusted.block(block(2)), block(4), CHAIN_ID, RULES, early)


def test_an_expired_header_vouches_for_nothing() -> None:
    rules = TrustRules(trusting_period_s=3600.0)
    late = block(2).header.time_ns + 3600 * 10**9
    with pytest.raises(TrustExpired, match="--trust-height"):
        check_next(Trusted.block(block(2)), block(4), CHAIN_ID, rules, late)
    check_next(Trusted.block(block(2)), block(4), CHAIN_ID, rules, late - 1)


def test_a_header_vouches_for_no_block_after_its_stake_has_come_free() -> None:
    rules = TrustRules(trusting_period_s=3600.0, unbonding_blocks=3)
    check_next(Trusted.block(block(2)), block(5), CHAIN_ID, rules, now_ns())
    with pytest.raises(TrustExpired, match="4 blocks"):
        check_next(Trusted.block(block(2)), block(6), CHAIN_ID, rules, now_ns())


# --- hostile servers ----------------------------------------------------------------------------------------------
MEANINGLESS = {"count", "total_pages", "proposer_priority", "canonical"}
"""Fields that are in no hash, under no signature, and not read."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a document that carries meaning."""
    if isinstance(value, dict):
        items = [(key, inner) for key, inner in value.items() if key not in MEANINGLESS]
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return [path]
    return [path, *(leaf for key, inner in items for leaf in leaves(inner, (*path, key)))]


def put(document: dict[str, Any], path: tuple[Any, ...], change: Any) -> None:
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])


def is_refused(document: dict[str, Any], height: int) -> None:
    with pytest.raises((DecodingError, LightError)) as refusal:
        check_next(Trusted.block(block(1)), read(document, height), CHAIN_ID, RULES, now_ns())
    assert str(refusal.value)


def other(value: Any) -> Any:
    """Of the same form, and yet another."""
    if isinstance(value, int):
        return value + 1
    if value is None:
        return "AA=="
    if isinstance(value, str) and value:
        digit = value[0]
        return ("1" if digit == "0" else "0" if digit.isdigit() else "B" if digit == "A" else "A") + value[1:]
    return "00" if value == "" else [] if value else [value]


LEAVES = [path for path in leaves(answers(9)) if path and path != ("validators", "total")]


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: ".".join(map(str, path)))
def test_every_field_is_covered(path: tuple[Any, ...]) -> None:
    document = answers(9)
    put(document, path, other)
    is_refused(document, 9)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["0", "1", "AA=="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


@given(path=st.sampled_from(LEAVES), value=JSON, height=st.sampled_from([2, 9]))
def test_anything_in_the_place_of_a_field_is_refused(path: tuple[Any, ...], value: Any, height: int) -> None:
    document = answers(height)
    put(document, path, lambda _: value)
    if json.dumps(document) == json.dumps(answers(height)):
        return
    is_refused(document, height)


@given(st.data())
def test_signatures_that_are_moved_dropped_or_doubled_are_refused(data: st.DataObject) -> None:
    document = answers(9)
    votes = document["commit"]["signed_header"]["commit"]["signatures"]
    chosen = data.draw(st.lists(st.sampled_from(votes), max_size=6))
    if chosen == votes:
        return
    document["commit"]["signed_header"]["commit"]["signatures"] = chosen
    is_refused(document, 9)


def test_a_commit_of_another_height_is_refused() -> None:
    document = answers(9)
    document["commit"]["signed_header"]["commit"] = answers(8)["commit"]["signed_header"]["commit"]
    is_refused(document, 9)


def test_a_validator_set_of_another_height_is_refused() -> None:
    document = answers(9)
    document["validators"]["validators"] = answers(2)["validators"]["validators"]
    is_refused(document, 9)
