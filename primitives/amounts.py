"""Money: integers of 10^-6 token ("micro"), never bool, never float."""

from decimal import Decimal, InvalidOperation
from typing import Final

MICRO_PER_TOKEN: Final = 1_000_000
MAX_AMOUNT: Final = 2**63 - 1
PPM: Final = 1_000_000
"""Parts per million: shares are integers of this unit."""


class AmountError(ValueError):
    """Not an amount: wrong type, sign, size or number of decimals."""


def check_amount(value: object, *, name: str = "amount", zero_ok: bool = False) -> int:
    """`value` itself when it is an int (not bool) in 1..2^63-1, or 0 where `zero_ok`.

    Raises: AmountError otherwise.
    """
    if type(value) is not int:
        raise AmountError(f"{name} is {value!r}; it should be an integer of 10^-6 token")
    if not (0 if zero_ok else 1) <= value <= MAX_AMOUNT:
        raise AmountError(f"{name} is {value}; it should be {'0' if zero_ok else '1'} to {MAX_AMOUNT}")
    return value


def share(amount: int, ppm: int) -> int:
    """`ppm` parts per million of `amount`, rounded down; 0 <= result <= amount for 0 <= ppm <= 10^6."""
    return amount * ppm // PPM


def slash_amount(stake: int, ppm: int) -> int:
    """What a slash takes: the share, but at least 1 unit and at most the stake (so a tiny stake is not spared)."""
    return min(max(1, share(stake, ppm)), stake)


def parse_tokens(text: str) -> int:
    """Micro units from what a person types, such as ``12.5`` (tokens) or ``300u`` (10^-6 tokens).

    Raises: AmountError when it is not a positive amount with at most six decimals.
    """
    try:
        value = Decimal(text[:-1]) if text.endswith("u") else Decimal(text) * MICRO_PER_TOKEN
    except InvalidOperation as error:
        raise AmountError(f"{text!r} is not an amount; write tokens such as 12.5, or 300u for 10^-6 tokens") from error
    if not value.is_finite() or value != value.to_integral_value():
        raise AmountError(f"{text!r} has more than six decimals or is not finite")
    return check_amount(int(value))


def format_tokens(micro: int) -> str:
    """Tokens for people: ``1234567`` -> ``1.234567``, without trailing zeros."""
    sign, micro = ("-", -micro) if micro < 0 else ("", micro)
    whole, fraction = divmod(micro, MICRO_PER_TOKEN)
    return f"{sign}{whole:,}" + (f".{fraction:06d}".rstrip("0") if fraction else "")
