"""`outerstep worker run` and `outerstep scorer run`."""

from pathlib import Path
from typing import Annotated

import typer

from node.cli.connect import open_key
from node.cli.options import DEFAULT_NODE, MAX_BLOCKS, KeyOption, NodeOption
from node.cli.output import progress_bar, run

worker_app = typer.Typer(no_args_is_help=True, help="Train in a job.")
scorer_app = typer.Typer(no_args_is_help=True, help="Score a job's updates, as a validator that it names.")

JobOption = Annotated[int, typer.Option("--job", min=1, metavar="ID", help="The job (outerstep job list).")]
HomeOption = Annotated[Path, typer.Option("--home", metavar="DIR", help="Folder for its state, data and log.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")]
ThreadsOption = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads for computing; default: torch's choice.")
]
LinesOption = Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON instead of text.")]


@worker_app.callback()
def _worker() -> None:
    """Train in a job."""


@scorer_app.callback()
def _scorer() -> None:
    """Score a job's updates, as a validator that it names."""


@worker_app.command("run")
def run_worker_command(
    job: JobOption,
    home: HomeOption,
    node: NodeOption = None,
    key: KeyOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    store_checkpoints: Annotated[
        bool | None,
        typer.Option(
            "--store-checkpoints/--no-store-checkpoints",
            help="Store the state after each settled round; default: when it is its turn among those paid.",
        ),
    ] = None,
    keep_checkpoints: Annotated[int, typer.Option(min=1, help="Checkpoints of so many settled rounds are kept.")] = 3,
    checkpoint_duration: Annotated[int, typer.Option(min=1, max=MAX_BLOCKS, metavar="BLOCKS")] = 20_000,
    replicas: Annotated[int, typer.Option(min=1, help="Providers for each stored file.")] = 2,
    log_duration: Annotated[
        int, typer.Option(min=0, max=MAX_BLOCKS, metavar="BLOCKS", help="Store the log for so long; 0: do not.")
    ] = 0,
    log_every: Annotated[
        int, typer.Option(min=0, metavar="ROUNDS", help="Store it after so many rounds; 0: at the end of the job.")
    ] = 0,
    top_ups: Annotated[
        int, typer.Option(min=0, help="How often to fill up a bond that was slashed below the least.")
    ] = 3,
    blob_lifetime: Annotated[
        int,
        typer.Option(min=10, max=MAX_BLOCKS, metavar="BLOCKS", help="How long the nodes keep each round's payload."),
    ] = 2_000,
    allow_short_phases: Annotated[
        bool,
        typer.Option(
            "--allow-short-phases", help="Also in a job whose phases are too short to be sure to reveal in time."
        ),
    ] = False,
    as_json: LinesOption = False,
) -> None:
    """Take part in a job until it is over; Ctrl-C stops cleanly, and the same command goes on."""
    from node.run_worker import run_worker
    from node.worker_options import WorkerOptions

    options = WorkerOptions(
        job_id=job,
        device=device,
        threads=threads,
        store_checkpoints=store_checkpoints,
        keep_checkpoints=keep_checkpoints,
        checkpoint_duration=checkpoint_duration,
        replicas=replicas,
        log_duration=log_duration,
        log_every=log_every,
        max_top_ups=top_ups,
        blob_lifetime=blob_lifetime,
        allow_short_phases=allow_short_phases,
    )
    signer = open_key(key)
    with progress_bar("training", quiet=as_json) as report:
        run(run_worker(node or [DEFAULT_NODE], signer, home, options, on_step=report, as_json=as_json))


@scorer_app.command("run")
def run_scorer_command(
    job: JobOption,
    home: HomeOption,
    node: NodeOption = None,
    key: KeyOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = None,
    max_windows: Annotated[int, typer.Option(min=1, help="Held-out windows to score on.")] = 64,
    as_json: LinesOption = False,
) -> None:
    """Score every revealed update on held-out text and attest states; the key is the validator's operator key."""
    from node.scorer import run_scorer

    run(
        run_scorer(
            node or [DEFAULT_NODE],
            open_key(key),
            home,
            job_id=job,
            device=device,
            threads=threads,
            max_windows=max_windows,
            as_json=as_json,
        )
    )
