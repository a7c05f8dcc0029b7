"""`outerstep localnet …`: up, down, status, logs, load. Light: what the commands need is imported when they run."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

DEFAULT_HOME: Final = Path("build/localnet")
MOST_RATE: Final = 100_000
"""Transactions a second that can be asked for."""

app = typer.Typer(
    help="Several nodes on this machine, for trying things out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


LoadKind = Literal["transfers", "commitments"]
HomeOption = Annotated[Path, typer.Option(help="Folder of the network.", envvar="OUTERSTEP_LOCALNET_HOME")]


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, max=32, help="How many.")] = 4,
    home: HomeOption = DEFAULT_HOME,
    base_port: Annotated[
        str, typer.Option(help="First port (node i uses base + 10 i to + 3); auto: the first free ones from 26600 on.")
    ] = "auto",
    detach: Annotated[bool, typer.Option(help="Return once it is up; stop it with `down`.")] = False,
) -> None:
    """Start a network, or continue the one in the folder, and run it until Ctrl-C."""
    from localnet.commands import run_up

    run_up(nodes, home, base_port, detach=detach)


@app.command()
def init(
    host: Annotated[list[str], typer.Option(help="Address of a machine; once for each node.")],
    home: HomeOption = DEFAULT_HOME,
    base_port: Annotated[int, typer.Option(min=1024, max=65532, help="First port, the same on every machine.")] = 26600,
) -> None:
    """Make the homes of a network on several machines, to be copied there (docs/localnet.md); starts nothing."""
    from localnet.commands import run_init

    run_init(host, home, base_port)


@app.command()
def down(home: HomeOption = DEFAULT_HOME) -> None:
    """Stop the network that runs in the folder; its data stays."""
    from localnet.commands import run_down

    run_down(home)


@app.command()
def status(
    home: HomeOption = DEFAULT_HOME,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show each node's height, peers and addresses. Exits with 1 unless all are healthy."""
    from localnet.commands import show_status

    show_status(home, as_json=as_json)


@app.command()
def logs(
    node: Annotated[str, typer.Argument(help="Number of a node, such as 2; all when left out.")] = "",
    home: HomeOption = DEFAULT_HOME,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many old lines of each file.")] = 20,
) -> None:
    """Print the logs of the nodes' processes."""
    from localnet.commands import show_logs

    show_logs(node, home, follow_on=follow_on, lines=lines)


@app.command()
def load(
    home: HomeOption = DEFAULT_HOME,
    rate: Annotated[str, typer.Option(help="Transactions a second; max: as many as go.")] = "2500",
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long is measured, after 2 s of the same.")] = 10.0,
    kind: Annotated[LoadKind, typer.Option(help="Payments, or commitments of training rounds.")] = "transfers",
    messages: Annotated[int, typer.Option(min=1, max=100, help="How many in each transaction.")] = 1,
    connections: Annotated[
        int | None, typer.Option(min=1, max=256, help="To CometBFT's RPC; one for each node if not given.")
    ] = None,
    accounts: Annotated[
        int | None, typer.Option(min=1, max=20_000, help="That sign; as many as the rate takes if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Send a load to the network that runs in the folder, and measure it. Exits with 1 unless all of it succeeds."""
    from localnet.load.command import run
    from localnet.load.plan import Wish

    wish = Wish(
        kind=kind,
        rate=_parse_rate(rate),
        seconds=seconds,
        messages=messages,
        connections=connections,
        accounts=accounts,
    )
    run(home, wish, as_json=as_json)


def _parse_rate(text: str) -> float | None:
    """None: as many as go."""
    if text == "max":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate <= MOST_RATE:
        raise typer.BadParameter(
            f"{text!r} is neither max nor a number above 0, up to {MOST_RATE}", param_hint="--rate"
        )
    return rate


if __name__ == "__main__":
    app()
