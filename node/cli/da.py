"""`outerstep da …`: blobs of bytes that the nodes hold for a while."""

from pathlib import Path
from typing import Annotated

import typer

from node.cli.connect import open_client, open_key
from node.cli.options import MAX_BLOCKS, CliError, HashArgument, JsonOption, KeyOption, NodeOption
from node.cli.output import print_fields, progress_bar, run, show

app = typer.Typer(no_args_is_help=True, help="Publish and read blobs of the data-availability layer.")


@app.command()
def put(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to publish; 1 byte to 128 MiB.")],
    lifetime: Annotated[
        int, typer.Option(metavar="BLOCKS", min=1, max=MAX_BLOCKS, help="How long the nodes keep it.")
    ] = 1000,
    namespace: Annotated[str, typer.Option(help="Who and what for: a-z 0-9 / - _")] = "cli",
    node: NodeOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Spread FILE over the nodes as erasure-coded rows, and put the certificate on chain."""
    from abci_app.messages import PublishBlob
    from node.publishing import publish
    from primitives.blobs import MAX_BLOB_BYTES, check_namespace

    try:
        check_namespace(namespace)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    size = file.stat().st_size
    if not 1 <= size <= MAX_BLOB_BYTES:
        raise CliError(f"{file} has {size} bytes; a blob has 1 to {MAX_BLOB_BYTES}")
    signer = open_key(key)

    async def work() -> dict[str, object]:
        async with open_client(node, signer) as client:
            expiry = await client.height() + lifetime
            with progress_bar("rows sent", quiet=as_json) as report:
                certificate = await publish(
                    client, file.read_bytes(), namespace=namespace, expiry_height=expiry, on_progress=report
                )
            result = await client.send([PublishBlob(certificate=certificate)])
            return {
                "commitment": certificate.promise.header.commitment,
                "size": size,
                "attesters": len(certificate.attestations),
                "expiry_height": expiry,
                "tx": result.hash,
            }

    document = run(work())
    show(document, as_json=as_json, table=lambda: print_fields("blob published", document.items()))


@app.command()
def get(
    commitment: HashArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the blob.")],
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a blob's rows, check and decode them, and write the bytes to FILE."""
    from da_layer.client import retrieve
    from node.files import write_atomically
    from node.row_holders import row_holders

    async def work() -> dict[str, object]:
        async with open_client(node) as client:
            record = await client.blob(commitment)
            if record is None:
                raise CliError(f"blob {commitment.hex()} is not certified on this chain")
            services = await row_holders(client, record)
            if services is None:
                raise CliError("no validator of this chain has registered a service")
            with progress_bar("rows fetched", quiet=as_json) as report:
                data = await retrieve(client.session, record.header, services, timeout_s=60.0, on_progress=report)
            write_atomically(out, data)
            return {"file": str(out), "size": len(data), "publisher": record.publisher, "namespace": record.namespace}

    document = run(work())
    show(document, as_json=as_json, table=lambda: print_fields("blob fetched", document.items()))
