"""`outerstep tx register-validator` and `register-service`: what a node's home says of it, put on chain."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli.connect import open_client, open_key, show_result
from node.cli.options import AmountArgument, JsonOption, NodeOption, WaitOption
from node.cli.output import run

if TYPE_CHECKING:
    from abci_app.messages import RegisterService
    from primitives.keys import PrivateKey

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
    from abci_app.messages import Message, RegisterValidator
    from node.engine_files import prove_possession
    from node.init import OPERATOR_KEY, SERVICE_KEY, read_identity

    identity = read_identity(home)
    key, service_key = open_key(home / OPERATOR_KEY), open_key(home / SERVICE_KEY)

    async def send() -> None:
        async with open_client(node, key) as client:
            chain_id = await client.chain_id()
            proof = prove_possession(home, chain_id, key.address)
            messages: list[Message] = [
                RegisterValidator(consensus_key=identity.consensus_key, possession_proof=proof, bond=bond),
                _registration(service_key, identity.url, chain_id, key.address),
            ]
            show_result(await client.send(messages, timeout_s=timeout), as_json=as_json)

    run(send())


@app.command("register-service")
def register_service(
    home: HomeOption, node: NodeOption = None, timeout: WaitOption = 30.0, as_json: JsonOption = False
) -> None:
    """Put the service key and address of the node in DIR on chain; its operator key signs."""
    from node.init import OPERATOR_KEY, SERVICE_KEY, read_identity

    identity = read_identity(home)
    key, service_key = open_key(home / OPERATOR_KEY), open_key(home / SERVICE_KEY)

    async def send() -> None:
        async with open_client(node, key) as client:
            message = _registration(service_key, identity.url, await client.chain_id(), key.address)
            show_result(await client.send([message], timeout_s=timeout), as_json=as_json)

    run(send())


def _registration(service_key: "PrivateKey", url: str, chain_id: str, operator: bytes) -> "RegisterService":
    from abci_app.messages import RegisterService
    from abci_app.transactions import service_possession_digest

    proof = service_key.sign(service_possession_digest(chain_id, operator))
    return RegisterService(service_key=service_key.public_key, possession_proof=proof, url=url)
