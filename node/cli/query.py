"""`outerstep query …`: what the chain's state says.

With --prove the answer is checked against a block header of the asked node, with --verify that header is checked too.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from node.cli.connect import open_client
from node.cli.options import AddressArgument, CliError, HashArgument, JsonOption, NodeOption, ProveOption
from node.cli.output import print_fields, print_table, run, show
from node.cli.verifying import (
    VerifyOption,
    ask_verified,
    query_options,
    refuse_verify,
    summary,
    wants_verify,
    with_verified,
)

if TYPE_CHECKING:
    from abci_app.records import Blob, Job, Settlement, Validator
    from abci_app.tables import KeyPart, Table
    from node.client import Client
    from node.light.client import Verified

app = typer.Typer(no_args_is_help=True, callback=query_options)
T = TypeVar("T")

JobArgument = Annotated[int, typer.Argument(min=1, metavar="JOB")]
PROVEN: Final = " (proven against a block header)"


def ask(nodes: list[str] | None, question: "Callable[[Client], Awaitable[T]]") -> T:
    """The answer to one question to one of the nodes."""

    async def work() -> T:
        async with open_client(nodes) as client:
            return await question(client)

    return run(work())


@dataclass(frozen=True, slots=True)
class Asked:
    """How one record is asked for, and how it is to be printed."""

    context: typer.Context
    nodes: list[str] | None
    prove: bool
    verify: bool
    as_json: bool

    @property
    def verified(self) -> bool:
        """Whether --verify stood anywhere."""
        return wants_verify(self.context, self.verify)

    def fetch(
        self, plain: "Callable[[Client], Awaitable[T | None]]", table: "Table[Any]", parts: "tuple[KeyPart, ...]"
    ) -> "tuple[T | None, Verified | None, str]":
        """(record, what was verified, words for the title)."""
        if self.verified:
            answer = ask_verified(self.context, self.nodes, lambda client: client.proved_answer(table, *parts))
            assert answer.verified is not None
            return answer.record, answer.verified, f" ({summary(answer.verified)})"
        if self.prove:
            return ask(self.nodes, lambda client: client.proved(table, *parts)), None, PROVEN
        return ask(self.nodes, plain), None, ""

    def show_record(
        self,
        title: str,
        plain: "Callable[[Client], Awaitable[Any]]",
        table: "Table[Any]",
        parts: "tuple[KeyPart, ...]",
    ) -> None:
        """Print one record; no such record is an error."""
        found, verified, words = self.fetch(plain, table, parts)
        if found is None:
            raise CliError(f"there is no {title} on this chain{words}")
        show_struct(title + words, found, as_json=self.as_json, verified=verified)


def show_struct(title: str, struct: Any, *, as_json: bool, verified: "Verified | None" = None) -> None:
    """Every field of a struct, nested ones with dotted names."""
    document = with_verified(struct, verified)
    show(document, as_json=as_json, table=lambda: print_fields(title, _fields(struct, "")))


async def _verified_validators(client: "Client") -> "tuple[list[Validator], Verified | None]":
    from abci_app.tables import VALIDATORS

    found: list[Validator] = []
    verified = None
    for listed in await client.validators():
        answer = await client.proved_answer(VALIDATORS, listed.operator)
        if answer.record is None or answer.verified is None:
            raise CliError(f"the node lists a validator that there is not: {listed.operator.hex()}")
        found.append(answer.record)
        verified = answer.verified
    return found, verified


async def _verified_blob(client: "Client", commitment: bytes) -> "tuple[Blob | None, Verified | None]":
    """Which record it is the node says; that it is on the chain is verified. Absence under any name is not."""
    from abci_app.tables import BLOBS
    from primitives.hashing import sha256

    listed = await client.blob(commitment)
    if listed is None:
        return None, None
    namespace = sha256(listed.namespace.encode())
    answer = await client.proved_answer(BLOBS, commitment, listed.publisher, namespace)
    return answer.record, answer.verified


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
def status(context: typer.Context, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Height, peers and addresses of the node."""
    refuse_verify(context)
    show_struct("node", ask(node, lambda client: client.node_status()), as_json=as_json)


@app.command()
def block(
    context: typer.Context,
    height: Annotated[int | None, typer.Argument(min=1, metavar="[HEIGHT]")] = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """A block's header and transactions; the newest without HEIGHT."""
    refuse_verify(context)
    found = ask(node, lambda client: client.block(height))
    if found is None:
        raise CliError(f"there is no block {height or ''} yet")
    show_struct("block", found, as_json=as_json)


@app.command("tx")
def transaction(
    context: typer.Context, tx_hash: HashArgument, node: NodeOption = None, as_json: JsonOption = False
) -> None:
    """What became of a transaction: committed, pending, expired or unknown."""
    refuse_verify(context)
    show_struct("transaction", ask(node, lambda client: client.tx(tx_hash)), as_json=as_json)


@app.command()
def account(
    context: typer.Context,
    address: AddressArgument,
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Balance in tokens (in JSON: 10^-6 token) and nonce; an account never used is empty."""
    from abci_app.records import Account
    from abci_app.tables import ACCOUNTS
    from primitives.amounts import format_tokens

    asked = Asked(context, node, prove, verify, as_json)
    answer, verified, words = asked.fetch(lambda client: client.account(address), ACCOUNTS, (address,))
    found = answer or Account()
    rows = [("balance", f"{format_tokens(found.balance)} tokens"), ("nonce", found.nonce)]
    show(with_verified(found, verified), as_json=as_json, table=lambda: print_fields(f"account{words}", rows))


@app.command()
def validators(
    context: typer.Context, verify: VerifyOption = False, node: NodeOption = None, as_json: JsonOption = False
) -> None:
    """All validators: stake, state and where they serve. Verified is each of them, not that none is left out."""
    from primitives.amounts import format_tokens

    if wants_verify(context, verify):
        found, verified = ask_verified(context, node, _verified_validators)
    else:
        found, verified = ask(node, lambda client: client.validators()), None
    rows = [(v.operator, format_tokens(v.bond), "jailed" if v.jailed else "bonded", v.url or "-") for v in found]
    columns = ["operator", "bond", "state", "services"]
    title = "validators" + (f" (each of them {summary(verified)})" if verified is not None else "")
    document = found if verified is None else {"validators": found, "verified": verified}
    show(document, as_json=as_json, table=lambda: print_table(title, columns, rows, empty="no validators"))


@app.command()
def job(
    context: typer.Context,
    job_id: JobArgument,
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One job."""
    from abci_app.tables import JOBS

    asked = Asked(context, node, prove, verify, as_json)
    asked.show_record(f"job {job_id}", lambda client: client.job(job_id), JOBS, (job_id,))


@app.command("round")
def round_command(
    context: typer.Context,
    job_id: JobArgument,
    index: Annotated[int | None, typer.Argument(min=0, metavar="[ROUND]")] = None,
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One round of JOB; without ROUND the open one, else the latest."""
    from abci_app.tables import ROUNDS

    asked = Asked(context, node, prove, verify, as_json)
    if index is None and (prove or asked.verified):
        raise CliError("with --prove and --verify name the round too")
    title = f"round {index} of job {job_id}" if index is not None else f"round of job {job_id}"
    asked.show_record(title, lambda client: client.round(job_id, index), ROUNDS, (job_id, index or 0))


@app.command()
def settlements(
    context: typer.Context,
    job_id: JobArgument,
    index: Annotated[int | None, typer.Argument(min=0, metavar="[ROUND]")] = None,
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the rounds of JOB ended: state root, who was paid what. With ROUND just that one, in full."""
    from abci_app.tables import SETTLEMENTS
    from primitives.amounts import format_tokens

    asked = Asked(context, node, prove, verify, as_json)
    if index is not None:
        title, parts = f"settlement of round {index} of job {job_id}", (job_id, index)
        asked.show_record(title, lambda client: client.settlement(job_id, index), SETTLEMENTS, parts)
        return
    if prove or asked.verified:
        raise CliError("with --prove and --verify name the round too")

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
    context: typer.Context,
    deal_id: Annotated[int, typer.Argument(min=1, metavar="DEAL")],
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One storage deal."""
    from abci_app.tables import DEALS

    asked = Asked(context, node, prove, verify, as_json)
    asked.show_record(f"deal {deal_id}", lambda client: client.deal(deal_id), DEALS, (deal_id,))


@app.command()
def blob(
    context: typer.Context,
    commitment: HashArgument,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """One certified blob; of several records the one that lasts longest. Verified is that record."""
    verified, words = None, ""
    if wants_verify(context, verify):
        found, verified = ask_verified(context, node, lambda client: _verified_blob(client, commitment))
        words = f" ({summary(verified)})" if verified is not None else ""
    else:
        found = ask(node, lambda client: client.blob(commitment))
    if found is None:
        raise CliError(f"blob {commitment.hex()} is not certified on this chain{words}")
    show_struct(f"blob{words}", found, as_json=as_json, verified=verified)


@app.command()
def params(
    context: typer.Context,
    prove: ProveOption = False,
    verify: VerifyOption = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The chain's parameters."""
    from abci_app.tables import PARAMS

    Asked(context, node, prove, verify, as_json).show_record("parameters", lambda client: client.params(), PARAMS, ())
