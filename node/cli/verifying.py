"""`outerstep query --verify`: where its trust comes from. Imports the heavy parts when called."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from node.cli.connect import open_client
from node.cli.options import DEFAULT_NODE, CliError, hash32
from node.cli.output import run

if TYPE_CHECKING:
    from node.client import Client
    from node.light.client import LightClient, Verified

T = TypeVar("T")

VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Check the answer with a proof, and the header by the validators' signatures (docs/light_client.md).",
    ),
]


@dataclass(frozen=True, slots=True)
class LightOptions:
    """What the group's options said."""

    verify: bool
    genesis: Path | None
    trust_height: int | None
    trust_hash: bytes | None
    trusting_period: float | None
    max_age: float
    folder: Path


def query_options(
    context: typer.Context,
    verify: VerifyOption = False,
    genesis: Annotated[
        Path | None,
        typer.Option(
            envvar="OUTERSTEP_GENESIS",
            metavar="FILE",
            help="With --verify: the network's genesis.json, or the home of a node that has it; trust starts there.",
        ),
    ] = None,
    trust_height: Annotated[
        int | None, typer.Option(min=1, metavar="HEIGHT", help="With --verify: a block to trust instead.")
    ] = None,
    trust_hash: Annotated[
        bytes | None, typer.Option(parser=hash32, metavar="HASH", help="Its hash, from someone you trust.")
    ] = None,
    trusting_period: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="How long a header is trusted; else what genesis says."),
    ] = None,
    max_age: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How old the newest block of a node may be.")
    ] = 60.0,
    light_home: Annotated[
        Path | None,
        typer.Option(envvar="OUTERSTEP_LIGHT_HOME", metavar="DIR", help="Verified headers; else ~/.outerstep/light."),
    ] = None,
) -> None:
    """Ask a node what the chain's state is."""
    if (trust_height is None) != (trust_hash is None):
        raise typer.BadParameter("give --trust-height and --trust-hash together")
    folder = light_home or Path.home() / ".outerstep/light"
    context.obj = LightOptions(verify, genesis, trust_height, trust_hash, trusting_period, max_age, folder)


def wants_verify(context: typer.Context, verify: bool) -> bool:
    """Whether --verify stood before the command or after it."""
    return verify or (isinstance(context.obj, LightOptions) and context.obj.verify)


def refuse_verify(context: typer.Context) -> None:
    """Raises: CliError where --verify was asked of a query that no proof can carry."""
    if wants_verify(context, False):
        raise CliError(f"query {context.info_name} carries no proof, so it cannot be verified; leave --verify out")


def ask_verified(context: typer.Context, nodes: list[str] | None, question: "Callable[[Client], Awaitable[T]]") -> T:
    """The answer to one question, asked through a light client with the trust that the options name."""
    options = context.obj
    if not isinstance(options, LightOptions):
        raise CliError("--verify belongs to outerstep query")

    async def work() -> T:
        light = await open_light(options, nodes or [DEFAULT_NODE])
        async with open_client(nodes, light=light) as client:
            return await question(client)

    return run(work())


async def open_light(options: LightOptions, nodes: list[str]) -> "LightClient":
    """A light client of these nodes: the first that answers is asked, the others are compared with it.

    Raises: TrustError, NodeUnreachable (only where the chain's name is not known from genesis).
    """
    from node.light.client import LightClient
    from node.light.source import NodeSource
    from node.light.store import TrustedStore
    from node.light.trust import DEFAULT_TRUSTING_PERIOD_S, trust_genesis
    from node.light.verify import TrustRules

    genesis = None
    if options.genesis is not None:
        genesis = trust_genesis(await asyncio.to_thread(_read_genesis, options.genesis))
        chain_id = genesis.chain_id
    else:
        chain_id = await _claimed_chain_id(nodes)
    store = TrustedStore(options.folder, chain_id)
    if genesis is not None:
        store.bind(genesis.digest, genesis.rules)
    rules = store.rules or TrustRules(DEFAULT_TRUSTING_PERIOD_S)
    if options.trusting_period is not None:
        rules = TrustRules(options.trusting_period, rules.unbonding_blocks)
    pinned = None
    if options.trust_height is not None and options.trust_hash is not None:
        pinned = (options.trust_height, options.trust_hash)
    return LightClient(
        chain_id,
        [NodeSource(node) for node in nodes],
        rules=rules,
        trusted=[genesis.trusted] if genesis is not None else [],
        pinned=pinned,
        store=store,
        max_age_s=options.max_age,
    )


def summary(verified: "Verified") -> str:
    """For people."""
    others = f", {verified.num_witnesses} other nodes agree" if verified.num_witnesses else ""
    return (
        f"verified at height {verified.height} by {verified.signed_power} of {verified.total_power} power"
        f" on {verified.chain_id}{others}"
    )


def with_verified(value: Any, verified: "Verified | None") -> Any:
    """A record's JSON with the field `verified` beside its own."""
    from node.jsonform import to_json

    if verified is None:
        return value
    return {**to_json(value), "verified": to_json(verified)}


def _read_genesis(path: Path) -> bytes:
    from node.engine_files import GENESIS_NAME

    file = path / GENESIS_NAME if path.is_dir() else path
    return file.read_bytes()


async def _claimed_chain_id(nodes: list[str]) -> str:
    """Which chain the node says it follows; harmless when it lies, since no trusted header is of another chain."""
    import re

    from node.light.errors import TrustError

    async with open_client(nodes) as client:
        chain_id = await client.chain_id()
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,49}", chain_id):
        raise TrustError("the node names a chain that no chain can be named")
    return chain_id
