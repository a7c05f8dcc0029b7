"""`outerstep node …`: make a node's home, give it a genesis, run it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli.options import CliError, JsonOption, amount
from node.cli.output import print_fields, run, show

if TYPE_CHECKING:
    from node.init import NodeIdentity

app = typer.Typer(no_args_is_help=True, help="Make and run one node.")

HomeOption = Annotated[Path, typer.Option("--home", metavar="DIR", help="The node's folder.")]


@app.command()
def init(
    home: HomeOption,
    moniker: Annotated[str, typer.Option(help="Name of the node, for people.")] = "node",
    base_port: Annotated[int, typer.Option(help="First of its four ports.", min=1024, max=65532)] = 26600,
    host: Annotated[str, typer.Option(help="Address by which others reach this machine.")] = "127.0.0.1",
    bind: Annotated[str | None, typer.Option(help="Address to listen on; default: the same as --host.")] = None,
    operator_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this account as operator; default: a new key.")
    ] = None,
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Seal the key files (asked for, or OUTERSTEP_PASSPHRASE).")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a new node in DIR and print its identity, which genesis and its peers need."""
    from node.cli.connect import open_key
    from node.cli.keys import new_passphrase
    from node.config import ports_from
    from node.init import init_node

    identity = init_node(
        home,
        moniker=moniker,
        network=ports_from(base_port, host=host, bind=bind),
        passphrase=new_passphrase() if passphrase else None,
        operator=open_key(operator_key) if operator_key else None,
    )
    names = identity.__struct_fields__
    rows = [(name, getattr(identity, name)) for name in names]
    show(identity, as_json=as_json, table=lambda: print_fields(f"new node in {home}", rows))


@app.command()
def genesis(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write genesis.json.")],
    chain_id: Annotated[str, typer.Option(help="Name of the new chain.")],
    identities: Annotated[
        list[Path], typer.Argument(metavar="IDENTITY…", help="What `node init --json` printed, one file for each node.")
    ],
    account: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS=TOKENS", help="An account and its balance; may be repeated.")
    ] = None,
    operator_balance: Annotated[
        str, typer.Option(metavar="TOKENS", help="Balance of each operator, for fees.")
    ] = "100",
    as_json: JsonOption = False,
) -> None:
    """Write the genesis of a new chain whose first validators are the given nodes."""
    from node.genesis import make_genesis

    if out.exists():
        raise CliError(f"{out} exists; a genesis is never overwritten, as nodes may have it (move it away first)")
    nodes = [_read_identity(path) for path in identities]
    balances = {node.operator: amount(operator_balance) for node in nodes}
    balances.update(_account(text) for text in account or [])
    out.write_bytes(make_genesis(nodes, balances, chain_id=chain_id))
    advice = f"{out} written; on every node: outerstep node join --home DIR {out} {' '.join(map(str, identities))}"
    document = {"file": str(out), "chain_id": chain_id, "validators": [node.operator for node in nodes]}
    show(document, as_json=as_json, table=lambda: typer.echo(advice))


@app.command()
def join(
    home: HomeOption,
    genesis: Annotated[Path, typer.Argument(metavar="GENESIS", help="genesis.json of the chain.")],
    identities: Annotated[
        list[Path] | None, typer.Argument(metavar="[IDENTITY…]", help="Identities of nodes to stay connected with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put a chain's genesis into the node in DIR, and name its peers."""
    from node.genesis import install_genesis
    from node.init import connect_peers

    peers = [_read_identity(path) for path in identities or []]
    install_genesis(home, genesis.read_bytes())
    connect_peers(home, peers)
    document = {"home": str(home), "peers": [peer.operator for peer in peers]}
    advice = f"{home} is ready; run: outerstep node start --home {home}"
    show(document, as_json=as_json, table=lambda: typer.echo(advice))


@app.command()
def start(home: HomeOption) -> None:
    """Run the node in DIR until Ctrl-C: engine, application, services."""
    from node.supervisor import main as supervise

    raise typer.Exit(supervise(["--home", str(home)]))


@app.command()
def reset(home: HomeOption, as_json: JsonOption = False) -> None:
    """Drop the stopped node's copy of the chain, to fetch it again from its peers; keys and signing state are kept."""
    from node.reset import reset_chain

    reset_chain(home.absolute())
    advice = f"{home}: the chain's copy is gone; start the node to fetch it again from its peers"
    show({"home": str(home)}, as_json=as_json, table=lambda: typer.echo(advice))


@app.command("state-sync")
def state_sync(
    home: HomeOption,
    sources: Annotated[
        list[str],
        typer.Option("--from", metavar="URL[,URL…]", help="Services of nodes of the chain; several are compared."),
    ],
    trust_height: Annotated[
        int | None, typer.Option(metavar="HEIGHT", help="A block that you know to be of the chain; with --trust-hash.")
    ] = None,
    trust_hash: Annotated[str | None, typer.Option(metavar="HEX", help="Its hash, from somebody you trust.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Have the new (or reset) node in DIR fetch a recent state at its next start, instead of executing all blocks."""
    from node.state_sync import arm

    wanted = [url.strip() for text in sources for url in text.split(",") if url.strip()]
    trust = run(arm(home.absolute(), wanted, trust_height=trust_height, trust_hash=trust_hash))
    if not trust.agreed:
        reason = "you gave it"
    elif len(trust.sources) > 1:
        reason = f"all {len(trust.sources)} sources say the same now; they are trusted in this"
    else:
        reason = f"{trust.sources[0]} says so now; it alone is trusted in this (name more with --from to compare)"
    advice = (
        f"{home} will fetch a snapshot. Trusted block: height {trust.height}, hash {trust.hash.hex()}: {reason}.\n"
        f"run: outerstep node start --home {home}"
    )
    show(trust, as_json=as_json, table=lambda: typer.echo(advice))


def _read_identity(path: Path) -> "NodeIdentity":
    import json

    from node.init import NodeIdentity
    from node.jsonform import JsonFormError, from_json

    try:
        identity: NodeIdentity = from_json(json.loads(path.read_bytes()), NodeIdentity)
    except (ValueError, RecursionError, JsonFormError) as error:
        raise CliError(f"{path} is not what `outerstep node init --json` prints: {error}") from error
    return identity


def _account(text: str) -> tuple[bytes, int]:
    from node.cli.options import address

    name, _, tokens = text.partition("=")
    return address(name), amount(tokens)
