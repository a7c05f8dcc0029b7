"""`outerstep query …`: what the chain's state says. With --prove the answer is checked against a block header."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from node.cli.connect import open_client
from node.cli.options import AddressArgument, CliError, HashArgument, JsonOption, NodeOption, ProveOption
from node.cli.output import print_fields, print_table, run, show

if TYPE_CHECKING:
    from abci_app.records import Job, Settlement
    from abci_app.tables import KeyPart, Table
    from node.client import Client

app = typer.Typer(no_args_is_help=True, help="Ask a node what the chain's state is.")
T = TypeVar("T")

JobArgument = Annotated[int, typer.Argument(min=1, metavar="JOB")]
PROVEN: Final = " (proven against a block header)"


def ask(nodes: list[str] | None, question: "Callable[[Client], Awaitable[T]]") -> T:
    """The answer to one question to one of the nodes."""

    async def work() -> T:
        async with open_client(nodes) as client:
            return await question(client)

    return run(work())


def record(
    nodes: list[str] | None,
    title: str,
    plain: "Callable[[Client], Awaitable[Any]]",
    table: "Table[Any]",
    parts: "tuple[KeyPart, ...]",
    *,
    prove: bool,
    as_json: bool,
) -> None:
    """Print one record, proven where asked for; no such record is an error."""
    found = ask(nodes, (lambda client: client.proved(table, *parts)) if prove else plain)
    if found is None:
        raise CliError(f"there is no {title} on this chain{' (proven)' if prove else ''}")
    show_struct(title + (PROVEN if prove else ""), found, as_json=as_json)


def show_struct(title: str, struct: Any, *, as_json: bool) -> None:
    """Every field of a struct, nested ones with dotted names."""
    show(struct, as_json=as_json, table=lambda: print_fields(title, _fields(struct, "")))


def _fields(struct: Any, prefix: str) -> list[tuple[str, object]]:
    import msgspec

    rows: list[tuple[str, object]] = []
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            rows += _fields(value, f"{prefix}{name}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            for index, item in enumerate(value):
                rows += _fields(item, f"{prefix}{name}[{index}].")
        else:
            rows.append((prefix + name, value))
    return rows


@app.command()
def status(node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Height, peers and addresses of the node."""
    show_struct("node", ask(node, lambda client: client.node_status()), as_json=as_json)


@app.command()
def block(
    height: Annotated[int | None, typer.Argument(min=1, metavar="[HEIGHT]")] = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """A block's header and transactions; the newest without HEIGHT."""
    found = ask(node, lambda client: client.block(height))
    if found is None:
        raise CliError(f"there is no block {height or ''} yet")
    show_struct("block", found, as_json=as_json)


@app.command("tx")
def transaction(tx_hash: HashArgument, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """What became of a transaction: committed, pending, expired or unknown."""
    show_struct("transaction", ask(node, lambda client: client.tx(tx_hash)), as_json=as_json)


@app.command()
def account(
    address: AddressArgument, prove: ProveOption = False, node: NodeOption = None, as_json: JsonOption = False
) -> None:
    """Balance in tokens (in JSON: 10^-6 token) and nonce; an account never used is empty."""
    from abci_app.records import Account
    from abci_app.tables import ACCOUNTS
    from primitives.amounts import format_tokens

    asked = ask(node, lambda client: client.proved(ACCOUNTS, address) if prove else client.account(address))
    found = asked or Account()
    rows = [("balance", f"{format_tokens(found.balance)} tokens"), ("nonce", found.nonce)]
    show(found, as_json=as_json, table=lambda: print_fields("account" + (PROVEN if prove else ""), rows))


@app.command()
def validators(node: NodeOption = None, as_json: JsonOption = False) -> None:
    """All validators: stake, state and where they serve."""
    from primitives.amounts import format_tokens

    found = ask(node, lambda client: client.validators())
    rows = [(v.operator, format_tokens(v.bond), "jailed" if v.jailed else "bonded", v.url or "-") for v in found]
    columns = ["operator", "bond", "state", "services"]
    show(found, as_json=as_json, table=lambda: print_table("validators", columns, rows, empty="no validators"))


@app.command()
def job(job_id: JobArgument, prove: ProveOption = False, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """One job."""
    from abci_app.tables import JOBS

    record(node, f"job {job_id}", lambda c: c.job(job_id), JOBS, (job_id,), prove=prove, as_json=as_json)


@app.command("round")
def round_command(
    job_id: JobArgument,
    index: Annotated[int | None, typer.Argument(min=0, metavar="[ROUND]")] = None,
    prove: ProveOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One round of JOB; without ROUND the open one, else the latest."""
    from abci_app.tables import ROUNDS

    if prove and index is None:
        raise CliError("with --prove name the round too")
    title = f"round {index} of job {job_id}" if index is not None else f"round of job {job_id}"
    parts = (job_id, index or 0)
    record(node, title, lambda c: c.round(job_id, index), ROUNDS, parts, prove=prove, as_json=as_json)


@app.command()
def settlements(
    job_id: JobArgument,
    index: Annotated[int | None, typer.Argument(min=0, metavar="[ROUND]")] = None,
    prove: ProveOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the rounds of JOB ended: state root, who was paid what. With ROUND just that one, in full."""
    from abci_app.tables import SETTLEMENTS
    from primitives.amounts import format_tokens

    if index is not None:
        title, parts = f"settlement of round {index} of job {job_id}", (job_id, index)
        record(node, title, lambda c: c.settlement(job_id, index), SETTLEMENTS, parts, prove=prove, as_json=as_json)
        return
    if prove:
        raise CliError("with --prove name the round too")

    async def question(client: "Client") -> "tuple[Job | None, list[Settlement]]":
        return await client.job(job_id), await client.every(lambda cursor: client.settlements(job_id, cursor))

    job, found = ask(node, question)
    if job is None:
        raise CliError(f"there is no job {job_id} on this chain; outerstep job list shows those there are")
    columns = ["round", "height", "state root", "paid workers", "paid"]
    rows = [
        (
            s.round_index,
            s.height,
            s.state_root,
            sum(outcome.verdict == "paid" for outcome in s.outcomes),
            format_tokens(s.total_paid),
        )
        for s in found
    ]
    empty = f"no round of job {job_id} is settled yet"
    show(found, as_json=as_json, table=lambda: print_table("settlements", columns, rows, empty=empty))


@app.command()
def deal(
    deal_id: Annotated[int, typer.Argument(min=1, metavar="DEAL")],
    prove: ProveOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One storage deal."""
    from abci_app.tables import DEALS

    record(node, f"deal {deal_id}", lambda c: c.deal(deal_id), DEALS, (deal_id,), prove=prove, as_json=as_json)


@app.command()
def blob(commitment: HashArgument, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """One certified blob."""
    found = ask(node, lambda client: client.blob(commitment))
    if found is None:
        raise CliError(f"blob {commitment.hex()} is not certified on this chain")
    show_struct("blob", found, as_json=as_json)


@app.command()
def params(prove: ProveOption = False, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """The chain's parameters."""
    from abci_app.tables import PARAMS

    record(node, "parameters", lambda client: client.params(), PARAMS, (), prove=prove, as_json=as_json)
