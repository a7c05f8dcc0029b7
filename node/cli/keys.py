"""`outerstep keys …`: key files of accounts."""

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import CliError, JsonOption
from node.cli.output import print_fields, print_json, print_table, show

app = typer.Typer(no_args_is_help=True, help="Make and look at key files (readable by you alone).")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE")]


@app.command()
def new(
    file: FileArgument,
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Seal it with a passphrase (asked for, or OUTERSTEP_PASSPHRASE).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a new key in FILE; an existing file is never overwritten."""
    from node.keys import write_key
    from primitives.keys import PrivateKey

    key = PrivateKey.generate()
    write_key(file, key, new_passphrase() if passphrase else None)
    document = {"file": str(file), "address": key.address, "public_key": key.public_key}
    show(document, as_json=as_json, table=lambda: print_fields("new key", document.items()))


@app.command("show")
def show_key(file: FileArgument, as_json: JsonOption = False) -> None:
    """Print the address and public key in FILE, and whether it is sealed."""
    from node.keys import is_sealed, key_address, public_key

    document = {
        "file": str(file),
        "address": key_address(file),
        "public_key": public_key(file),
        "sealed": is_sealed(file),
    }
    show(document, as_json=as_json, table=lambda: print_fields("key", document.items()))


@app.command("list")
def list_keys(folder: Annotated[Path, typer.Argument(metavar="DIR")] = Path("."), as_json: JsonOption = False) -> None:
    """List the key files in DIR."""
    from node.keys import KeyFileError, is_sealed, key_address

    if not folder.is_dir():
        raise CliError(f"{folder} is not a folder")
    found: list[dict[str, object]] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append({"file": str(path), "address": key_address(path), "sealed": is_sealed(path)})
        except KeyFileError:
            continue
    rows = [(item["file"], item["address"], item["sealed"]) for item in found]
    show(
        found,
        as_json=as_json,
        table=lambda: print_table("keys", ["file", "address", "sealed"], rows, empty=f"no key files in {folder}"),
    )


@app.command()
def export(
    file: FileArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Print the secret in FILE as JSON: whoever has it has the account."""
    from node.cli.connect import open_key

    key = open_key(file)
    if not yes:
        typer.confirm(f"print the secret of {file} on this screen?", abort=True, err=True)
    print_json({"address": key.address, "secret": key.secret})


def new_passphrase() -> str:
    """What to seal a new key with: from the environment, else asked for twice."""
    import os

    from node.cli.connect import PASSPHRASE_VARIABLE

    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given:
        return given
    return str(typer.prompt("new passphrase", hide_input=True, confirmation_prompt=True, err=True))
