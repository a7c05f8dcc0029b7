"""What `make bench-chain` is asked to do."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PARTS: Final = ("throughput", "latency", "envelopes", "flood", "commits")
DEFAULT_OUT: Final = Path("build/bench-chain.json")
DEFAULT_ROUNDS: Final = 3
DEFAULT_SECONDS: Final = 8.0
DEFAULT_ACCOUNTS: Final = (10_000, 100_000, 1_000_000)
QUICK_SECONDS: Final = 3.0
QUICK_ACCOUNTS: Final = DEFAULT_ACCOUNTS[:2]
VALIDATORS: Final = (1, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is measured, and where the result goes."""

    parts: tuple[str, ...] = PARTS
    rounds: int = DEFAULT_ROUNDS
    """How often everything is repeated; figures are medians over the rounds."""
    seconds: float = DEFAULT_SECONDS
    """Measured window of each load."""
    validators: tuple[int, ...] = VALIDATORS
    """Sizes of the networks whose throughput is measured."""
    accounts: tuple[int, ...] = DEFAULT_ACCOUNTS
    """Sizes of the states in which commits are measured."""
    out: Path = DEFAULT_OUT
    show: bool = False
    """Only print what `out` holds already."""


def parse_options(arguments: Sequence[str] | None) -> Options:
    """Exits with status 2 and a sentence when the arguments make no sense."""
    parser = argparse.ArgumentParser(
        prog="make bench-chain ARGS=...",
        description="The chain under load, beside CometBFT's Go kvstore; about 10 minutes. Writes one JSON file.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one round, short windows, up to 100,000 accounts: a look, no result")
    add("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    add("--rounds", "--alternations", type=int, metavar="N", help=f"default: {DEFAULT_ROUNDS}")
    add("--seconds", type=float, help=f"measured window of each load (default: {DEFAULT_SECONDS:g})")
    add("--validators", type=int, nargs="+", choices=VALIDATORS, default=VALIDATORS, metavar="N", help="default: 1 4")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"default: {DEFAULT_OUT}")
    add("--show", action="store_true", help="measure nothing; print the table of FILE")
    chosen = parser.parse_args(arguments)
    rounds = chosen.rounds if chosen.rounds is not None else (1 if chosen.quick else DEFAULT_ROUNDS)
    seconds = chosen.seconds if chosen.seconds is not None else (QUICK_SECONDS if chosen.quick else DEFAULT_SECONDS)
    if not 1 <= rounds <= 20:
        parser.error(f"--rounds is {rounds}; it should be 1 to 20")
    if not 1 <= seconds <= 120:
        parser.error(f"--seconds is {seconds:g}; it should be 1 to 120")
    return Options(
        parts=tuple(part for part in PARTS if part in chosen.only),
        rounds=rounds,
        seconds=seconds,
        validators=tuple(sorted(set(chosen.validators))),
        accounts=QUICK_ACCOUNTS if chosen.quick else DEFAULT_ACCOUNTS,
        out=chosen.out,
        show=chosen.show,
    )
