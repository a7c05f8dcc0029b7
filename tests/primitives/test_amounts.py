"""Money is a positive integer of bounded size, whatever is thrown at it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.amounts import (
    MAX_AMOUNT,
    PPM,
    AmountError,
    check_amount,
    format_tokens,
    parse_tokens,
    share,
    slash_amount,
)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, b"1", 0, -1, MAX_AMOUNT + 1, 2**200])
def test_what_is_no_amount_is_refused(value: Any) -> None:
    with pytest.raises(AmountError):
        check_amount(value)


def test_zero_is_an_amount_only_where_said() -> None:
    assert check_amount(0, zero_ok=True) == 0
    assert check_amount(MAX_AMOUNT) == MAX_AMOUNT


@given(st.integers(0, MAX_AMOUNT), st.integers(0, PPM))
def test_share_stays_within_the_whole(amount: int, ppm: int) -> None:
    assert 0 <= share(amount, ppm) <= amount


@given(st.integers(0, MAX_AMOUNT), st.integers(0, PPM))
def test_slash_takes_something_and_never_more_than_there_is(stake: int, ppm: int) -> None:
    taken = slash_amount(stake, ppm)
    assert min(1, stake) <= taken <= stake


@given(st.integers(1, MAX_AMOUNT))
def test_tokens_survive_their_text_form(micro: int) -> None:
    assert parse_tokens(format_tokens(micro).replace(",", "")) == micro


@pytest.mark.parametrize("text", ["", "abc", "-1", "0", "1.0000001", "nan", "inf", "1e30", "u"])
def test_text_that_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(AmountError):
        parse_tokens(text)


def test_units_are_tokens_or_micro() -> None:
    assert parse_tokens("12.5") == 12_500_000
    assert parse_tokens("300u") == 300
