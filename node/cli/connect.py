"""From options to clients and keys, and the common way of sending one message. Imports the heavy parts when called."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from node.cli.options import DEFAULT_NODE, CliError
from node.cli.output import print_fields, run, show

if TYPE_CHECKING:
    from abci_app.messages import Message
    from node.client import Client
    from node.light.client import LightClient
    from node.sending import TxResult
    from primitives.keys import PrivateKey

PASSPHRASE_VARIABLE = "OUTERSTEP_PASSPHRASE"


def open_key(path: Path | None) -> "PrivateKey":
    """The key in a file; asks for the passphrase of a sealed one where a person sits at the terminal.

    Raises: CliError without a path; KeyFileError.
    """
    from node.keys import is_sealed, load_key

    if path is None:
        raise CliError("this command signs; name a key file with --key FILE or OUTERSTEP_KEY (outerstep keys new)")
    if is_sealed(path) and PASSPHRASE_VARIABLE not in os.environ and sys.stdin.isatty():
        return load_key(path, typer.prompt(f"passphrase of {path}", hide_input=True, err=True))
    return load_key(path)


def open_client(
    nodes: list[str] | None, key: "PrivateKey | None" = None, light: "LightClient | None" = None
) -> "Client":
    """A client of these nodes, the next one for one that does not answer; `light` verifies what it proves."""
    from node.fallback import FallbackClient

    return FallbackClient(nodes or [DEFAULT_NODE], key=key, light=light)


def send_and_show(
    nodes: list[str] | None, key_file: Path | None, message: "Message", *, timeout_s: float, as_json: bool
) -> None:
    """Sign one message, wait for its block, print hash, height and the id it made."""
    key = open_key(key_file)

    async def send() -> "TxResult":
        async with open_client(nodes, key) as client:
            return await client.send([message], timeout_s=timeout_s)

    show_result(run(send()), as_json=as_json)


def show_result(result: "TxResult", *, as_json: bool) -> None:
    """Print what became of a transaction."""
    document = {"hash": result.hash, "height": result.height, "code": result.code, "ids": list(result.ids)}
    rows = [("hash", result.hash), ("height", result.height)]
    rows += [("id", made) for made in result.ids if made]
    show(document, as_json=as_json, table=lambda: print_fields("in a block", rows))
