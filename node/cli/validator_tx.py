"""`outerstep tx register-validator` and `register-service`: what a node's home says of it, put on chain."""

from pathlib import Path
from typing import Annotated

import typer

from node.cli.connect import open_client, open_key, show_result
from node.cli.options import AmountArgument, JsonOption, NodeOption, WaitOption
from node.cli.output import run

app = typer.Typer()

HomeOption = Annotated[Path, typer.Option("--home", metavar="DIR", help="Home of the node (outerstep node init).")]


@app.command("register-validator")
def register_validator(
    bond: AmountArgument,
    home: HomeOption,
    node: NodeOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Make the node in DIR a validator with AMOUNT at stake, and say where it serves; its operator key signs."""
    from abci_app.messages import Message, RegisterService, RegisterValidator
    from node.engine_files import prove_possession
    from node.init import OPERATOR_KEY, read_identity

    identity = read_identity(home)
    key = open_key(home / OPERATOR_KEY)

    async def send() -> None:
        async with open_client(node, key) as client:
            proof = prove_possession(home, await client.chain_id(), key.address)
            messages: list[Message] = [
                RegisterValidator(consensus_key=identity.consensus_key, possession_proof=proof, bond=bond),
                RegisterService(service_key=identity.service_key, url=identity.url),
            ]
            show_result(await client.send(messages, timeout_s=timeout), as_json=as_json)

    run(send())


@app.command("register-service")
def register_service(
    home: HomeOption, node: NodeOption = None, timeout: WaitOption = 30.0, as_json: JsonOption = False
) -> None:
    """Put the service key and address of the node in DIR on chain; its operator key signs."""
    from abci_app.messages import RegisterService
    from node.init import OPERATOR_KEY, read_identity

    identity = read_identity(home)
    key = open_key(home / OPERATOR_KEY)

    async def send() -> None:
        async with open_client(node, key) as client:
            message = RegisterService(service_key=identity.service_key, url=identity.url)
            show_result(await client.send([message], timeout_s=timeout), as_json=as_json)

    run(send())
