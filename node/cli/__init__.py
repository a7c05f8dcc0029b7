"""The command line of a node and of those who use one. Everything heavy is imported by the command that needs it."""

import sys
from typing import Annotated

import typer

from node.cli import da, jobs, keys, node_commands, query, running, storage, tx, validator_tx
from node.cli.output import OutcomeGroup

app = typer.Typer(
    name="outerstep",
    help="A chain that keeps score of model training over slow links: nodes, workers, jobs, data and storage.",
    cls=OutcomeGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"outerstep {version('outerstep')}")
        raise typer.Exit


@app.callback()
def _all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the first command."""


app.add_typer(node_commands.app, name="node")
app.add_typer(keys.app, name="keys")
app.add_typer(query.app, name="query")
tx.app.add_typer(validator_tx.app)
app.add_typer(tx.app, name="tx")
app.add_typer(jobs.app, name="job")
app.add_typer(running.worker_app, name="worker")
app.add_typer(running.scorer_app, name="scorer")
app.add_typer(da.app, name="da")
app.add_typer(storage.app, name="storage")


def main() -> None:
    """Run the command line on the arguments of this process and exit with its code."""
    sys.exit(app())
