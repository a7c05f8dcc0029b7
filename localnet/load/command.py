"""What `outerstep localnet load` does; imported when it runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import msgspec
import typer
import uvloop

from localnet.load import commitments, transfers
from localnet.load.errors import LoadError
from localnet.load.offer import Offer
from localnet.load.plan import Kind, Plan, Wish, make_plan
from localnet.load.report import show
from localnet.load.results import LoadResult
from localnet.load.run import run_load
from localnet.load.steps import say, step
from localnet.load.target import Target, find_target
from localnet.state import StateError
from node.errors import NodeError

WORK: Final[dict[Kind, Callable[[int], int]]] = {"transfers": transfers.tx_work, "commitments": commitments.tx_work}
PREPARE: Final[dict[Kind, Callable[[Target, Plan], Offer]]] = {
    "transfers": transfers.prepare,
    "commitments": commitments.prepare,
}


def run(home: Path, wish: Wish, *, as_json: bool) -> None:
    """Raises: typer.Exit with 1 when the load could not be made or not everything was executed, 130 after Ctrl-C."""
    try:
        result = _load(home.absolute(), wish)
    except (LoadError, StateError, NodeError) as error:
        _fail(str(error))
    except KeyboardInterrupt as error:
        say("stopped; what was sent is executed all the same")
        raise typer.Exit(130) from error
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(result), indent=2))
    else:
        show(result)
    if result.ran_out:
        say(f"all that was prepared had been sent before the time was over; the window has {result.window_s:.1f} s")
    if not result.clean:
        _fail(_what_is_missing(result))


def _load(home: Path, wish: Wish) -> LoadResult:
    """Raises: LoadError, StateError, NodeError."""
    target = uvloop.run(find_target(home))
    plan = make_plan(
        wish,
        nodes=len(target.nodes),
        cores=os.cpu_count() or 1,
        params=target.params,
        tx_work=WORK[wish.kind](wish.messages),
    )
    offer = PREPARE[wish.kind](target, plan)
    rate = "as many transactions as go" if wish.rate is None else f"{wish.rate:g} transactions a second"
    with step(f"sending {rate} for {wish.seconds:g} s") as tell:
        work = run_load(offer, plan.pace, target.urls, target.measured(), lambda share: tell(round(share * 1000), 1000))
        try:
            return uvloop.run(work)
        except LoadError as error:
            raise LoadError(f"{error}. Has a node ended? See `outerstep localnet status --home {home}`") from error


def _what_is_missing(result: LoadResult) -> str:
    reasons = "; ".join(f"{reason} ({count} times)" for reason, count in result.reasons.items())
    return (
        f"of {result.submitted} transactions {result.failed} failed, {result.refused} were refused and {result.lost} "
        f"were lost: {reasons or 'the logs may say why, see `outerstep localnet logs`'}"
    )


def _fail(text: str) -> NoReturn:
    say(text)
    raise typer.Exit(1)
