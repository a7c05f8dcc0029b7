"""`outerstep tx …`: sign one message, send it, wait for its block."""

from typing import Annotated

import typer

from node.cli.connect import send_and_show
from node.cli.options import AddressArgument, AmountArgument, JsonOption, KeyOption, NodeOption, WaitOption

app = typer.Typer(no_args_is_help=True, help="Sign a transaction, send it, and wait for its block.")

JobArgument = Annotated[int, typer.Argument(min=1, metavar="JOB")]
DealArgument = Annotated[int, typer.Argument(min=1, metavar="DEAL")]


@app.command()
def transfer(
    to: AddressArgument,
    amount: AmountArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Send AMOUNT to ADDRESS."""
    from abci_app.messages import Transfer

    send_and_show(node, key, Transfer(to=to, amount=amount), timeout_s=timeout, as_json=as_json)


@app.command()
def bond(
    amount: AmountArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Add AMOUNT to the stake of your validator."""
    from abci_app.messages import Bond

    send_and_show(node, key, Bond(amount=amount), timeout_s=timeout, as_json=as_json)


@app.command()
def unbond(
    amount: AmountArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Take AMOUNT off the stake of your validator; it comes back after the unbonding time."""
    from abci_app.messages import Unbond

    send_and_show(node, key, Unbond(amount=amount), timeout_s=timeout, as_json=as_json)


@app.command("register-worker")
def register_worker(
    amount: AmountArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Put up AMOUNT as a worker's bond (worker run does it by itself where needed)."""
    from abci_app.messages import RegisterWorker

    send_and_show(node, key, RegisterWorker(bond=amount), timeout_s=timeout, as_json=as_json)


@app.command("retire-worker")
def retire_worker(
    node: NodeOption = None, key: KeyOption = None, timeout: WaitOption = 30.0, as_json: JsonOption = False
) -> None:
    """Take the worker's bond back after the unbonding time; leave all jobs first."""
    from abci_app.messages import RetireWorker

    send_and_show(node, key, RetireWorker(), timeout_s=timeout, as_json=as_json)


@app.command("leave-job")
def leave_job(
    job: JobArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Take no part in JOB after its current round."""
    from abci_app.messages import LeaveJob

    send_and_show(node, key, LeaveJob(job_id=job), timeout_s=timeout, as_json=as_json)


@app.command("extend-deal")
def extend_deal(
    deal: DealArgument,
    blocks: Annotated[int, typer.Argument(min=1, metavar="BLOCKS")],
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Keep DEAL for BLOCKS more; whoever sends it pays."""
    from abci_app.messages import ExtendDeal

    send_and_show(node, key, ExtendDeal(deal_id=deal, blocks=blocks), timeout_s=timeout, as_json=as_json)


@app.command("delete-deal")
def delete_deal(
    deal: DealArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """End DEAL now; what is left of its price comes back."""
    from abci_app.messages import DeleteDeal

    send_and_show(node, key, DeleteDeal(deal_id=deal), timeout_s=timeout, as_json=as_json)
