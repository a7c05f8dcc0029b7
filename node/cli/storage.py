"""`outerstep storage …`: files that providers hold by deal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from node.cli.connect import open_client, open_key, send_and_show
from node.cli.options import MAX_BLOCKS, CliError, JsonOption, KeyOption, NodeOption, WaitOption
from node.cli.output import print_fields, print_table, progress_bar, run, show

if TYPE_CHECKING:
    from abci_app.records import Deal
    from node.client import Client

app = typer.Typer(no_args_is_help=True, help="Store files with the nodes and fetch them.")

DEFAULT_JOURNAL = Path("~/.outerstep/deals")
FileReference = Annotated[str, typer.Argument(metavar="DEAL|ROOT", help="A deal's number, or a file's root (hex).")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    tier: Annotated[str, typer.Option(help="hot or temporary.")] = "hot",
    replicas: Annotated[int, typer.Option(min=1, help="How many providers hold it.")] = 2,
    duration: Annotated[
        int, typer.Option(min=1, max=MAX_BLOCKS, metavar="BLOCKS", help="How long, from its activation.")
    ] = 10_000,
    series: Annotated[str, typer.Option(help="Label for lists: a-z 0-9 / - _")] = "",
    journal: Annotated[
        Path, typer.Option(metavar="DIR", envvar="OUTERSTEP_JOURNAL", help="Where uploads under way are noted.")
    ] = DEFAULT_JOURNAL,
    node: NodeOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store FILE. Run again after an interruption it goes on where it was, and pays only once."""
    from node.storing import DealJournal, store_file

    if tier not in ("hot", "temporary"):
        raise typer.BadParameter(f"tier is {tier!r}; it should be hot or temporary")
    chosen: Literal["hot", "temporary"] = "hot" if tier == "hot" else "temporary"
    if not file.is_file():
        raise CliError(f"{file} is not a file")
    folder, signer = journal.expanduser(), open_key(key)

    async def work() -> "Deal":
        async with open_client(node, signer) as client:
            with progress_bar(f"storing {file.name}", quiet=as_json) as report:
                return await store_file(
                    client,
                    file,
                    tier=chosen,
                    replicas=replicas,
                    duration=duration,
                    series=series,
                    journal=folder,
                    on_progress=report,
                )

    deal = run(work())
    entry = DealJournal(folder).get(deal.key)
    document = {**_document(deal), "tx": entry.tx_hash if entry else ""}
    show(document, as_json=as_json, table=lambda: print_fields("stored", document.items()))


@app.command()
def download(
    reference: FileReference,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")],
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a file and check every byte; an interrupted download is resumed."""
    from node.storing import fetch_file

    async def work() -> "Deal":
        async with open_client(node) as client:
            deal = await _find(client, reference)
            with progress_bar(f"fetching {out.name}", quiet=as_json) as report:
                await fetch_file(client, deal, out, on_progress=report)
            return deal

    deal = run(work())
    document = {"file": str(out), "size": deal.size, "root": deal.root, "deal": deal.id}
    show(document, as_json=as_json, table=lambda: print_fields("fetched", document.items()))


@app.command("ls")
def list_deals(
    series: Annotated[str | None, typer.Option(help="Only this series.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only this owner's.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List storage deals."""
    from node.cli.options import address

    wanted = address(owner) if owner else None

    async def work() -> "list[Deal]":
        async with open_client(node) as client:
            return await client.every(lambda cursor: client.deals(owner=wanted, series=series, cursor=cursor))

    deals = [deal for deal in run(work()) if every or deal.status in ("pending", "active")]
    columns = ["deal", "series", "size", "tier", "state", "ends", "replicas", "root"]
    rows = [(d.id, d.series, d.size, d.tier, d.status, d.end_height, d.replicas, d.root.hex()[:16]) for d in deals]
    show(deals, as_json=as_json, table=lambda: print_table("deals", columns, rows, empty="no deals"))


@app.command()
def info(reference: FileReference, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """Show one deal, and which of its providers serve it."""
    from node.storing import provider_services

    async def work() -> tuple["Deal", list[str]]:
        async with open_client(node) as client:
            deal = await _find(client, reference)
            return deal, [validator.url for validator in (await provider_services(client, deal)).values()]

    deal, urls = run(work())
    document = {**_document(deal), "urls": urls}
    show(document, as_json=as_json, table=lambda: print_fields(f"deal {deal.id}", document.items()))


@app.command()
def rm(
    deal: Annotated[int, typer.Argument(min=1, metavar="DEAL")],
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """End one of your deals now; what is left of its price comes back."""
    from abci_app.messages import DeleteDeal

    send_and_show(node, key, DeleteDeal(deal_id=deal), timeout_s=timeout, as_json=as_json)


async def _find(client: "Client", reference: str) -> "Deal":
    from node.cli.options import hash32
    from node.storing import find_deal

    if reference.isdecimal() and len(reference) < 20:
        found = await client.deal(int(reference))
    else:
        found = await find_deal(client, hash32(reference))
    if found is None:
        raise CliError(f"there is no deal for {reference}; outerstep storage ls shows those there are")
    return found


def _document(deal: "Deal") -> dict[str, object]:
    return {
        "deal": deal.id,
        "root": deal.root,
        "size": deal.size,
        "tier": deal.tier,
        "series": deal.series,
        "status": deal.status,
        "owner": deal.owner,
        "providers": list(deal.providers),
        "end_height": deal.end_height,
    }
