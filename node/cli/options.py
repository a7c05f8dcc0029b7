"""Options that many commands share, and what becomes of their text. Light: the first thing every command imports."""

from pathlib import Path
from typing import Annotated, Final

import typer

from primitives.amounts import AmountError, parse_tokens

DEFAULT_NODE: Final = "http://127.0.0.1:26602"
"""Services of the first node of a local network with the default ports."""

MAX_BLOCKS: Final = 10**9
"""Longest time that a command takes: decades."""

NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        envvar="OUTERSTEP_NODE",
        metavar="URL",
        help="Address of a node's services; give several, and the next one is asked when one does not answer.",
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key", envvar="OUTERSTEP_KEY", metavar="FILE", help="Key file that signs (outerstep keys new)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ProveOption = Annotated[
    bool, typer.Option("--prove", help="Ask for a Merkle proof and check it against the block header.")
]
WaitOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the block.", min=0.1)
]


class CliError(Exception):
    """A command cannot go on; the message is one line that says what to do."""


def amount(text: str) -> int:
    """10^-6 token from ``12.5`` (tokens) or ``300u``; a usage error otherwise."""
    try:
        return parse_tokens(text)
    except AmountError as error:
        raise typer.BadParameter(str(error)) from error


def address(text: str) -> bytes:
    """20 bytes from ``outer1…``; a usage error otherwise."""
    from primitives.keys import KeyFormatError, parse_address

    try:
        return parse_address(text)
    except KeyFormatError as error:
        raise typer.BadParameter(str(error)) from error


def hash32(text: str) -> bytes:
    """32 bytes from 64 hex digits; a usage error otherwise."""
    try:
        value = bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not hex") from error
    if len(value) != 32:
        raise typer.BadParameter(f"{text!r} has {len(value)} bytes; a hash has 32 (64 hex digits)")
    return value


AmountArgument = Annotated[int, typer.Argument(parser=amount, metavar="AMOUNT", help="Tokens such as 12.5, or 300u.")]
AddressArgument = Annotated[bytes, typer.Argument(parser=address, metavar="ADDRESS", help="outer1…")]
HashArgument = Annotated[bytes, typer.Argument(parser=hash32, metavar="HASH", help="64 hex digits.")]
