"""`outerstep job …`: open training jobs and look at them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from node.cli.connect import open_client, open_key, send_and_show
from node.cli.options import MAX_BLOCKS, CliError, JsonOption, KeyOption, NodeOption, WaitOption
from node.cli.output import print_fields, print_table, progress_bar, run, show
from node.cli.query import ask, show_struct
from node.cli.storage import DEFAULT_JOURNAL

if TYPE_CHECKING:
    from abci_app.records import Job

app = typer.Typer(no_args_is_help=True, help="Open training jobs and look at them.")

JobArgument = Annotated[int, typer.Argument(min=1, metavar="JOB")]
WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
"""What `--set` takes as a number; everything else stays text, which the configuration then refuses by name."""


@app.command()
def create(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.toml]", help="The job's plan; options go before it.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text to train on; default: Python's standard library.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds to settle and pay.")] = None,
    reward: Annotated[str | None, typer.Option(metavar="TOKENS", help="For each round, shared by its workers.")] = None,
    min_workers: Annotated[int | None, typer.Option(min=1)] = None,
    max_workers: Annotated[int | None, typer.Option(min=1)] = None,
    train_blocks: Annotated[int | None, typer.Option(min=1, help="Longest training phase.")] = None,
    commit_blocks: Annotated[int | None, typer.Option(min=1)] = None,
    reveal_blocks: Annotated[int | None, typer.Option(min=1)] = None,
    score_blocks: Annotated[int | None, typer.Option(min=1)] = None,
    aggregate_blocks: Annotated[int | None, typer.Option(min=1)] = None,
    scorer: Annotated[list[str] | None, typer.Option(metavar="ADDRESS", help="May be repeated.")] = None,
    label: Annotated[str | None, typer.Option(help="Tells two jobs with the same terms apart.")] = None,
    data_duration: Annotated[
        int | None, typer.Option(min=1, max=MAX_BLOCKS, metavar="BLOCKS", help="How long to store the text.")
    ] = None,
    data_replicas: Annotated[int | None, typer.Option(min=1)] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A field of the training configuration; may be repeated."),
    ] = None,
    journal: Annotated[
        Path, typer.Option(metavar="DIR", envvar="OUTERSTEP_JOURNAL", help="Where uploads under way are noted.")
    ] = DEFAULT_JOURNAL,
    node: NodeOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store the text, build the genesis state, set the whole reward aside, and print the new job's number."""
    from node.job_creation import JobPlan, create_job

    flags: dict[str, Any] = {
        "rounds": rounds,
        "reward": reward,
        "min_workers": min_workers,
        "max_workers": max_workers,
        "train_blocks": train_blocks,
        "commit_blocks": commit_blocks,
        "reveal_blocks": reveal_blocks,
        "score_blocks": score_blocks,
        "aggregate_blocks": aggregate_blocks,
        "scorers": tuple(scorer) if scorer else None,
        "label": label,
        "data_duration": data_duration,
        "data_replicas": data_replicas,
    }
    values = _read_plan(plan)
    training = {**values.get("training", {}), **_settings(setting or [])}
    given = {name: value for name, value in flags.items() if value is not None}
    job_plan = JobPlan.from_mapping({**values, **given, "training": training})
    folder, signer = journal.expanduser(), open_key(key)

    async def work() -> "Job":
        async with open_client(node, signer) as client:
            with progress_bar("storing the text", quiet=as_json) as report:
                return await create_job(
                    client, job_plan, text or _standard_text(folder), journal=folder, on_progress=report
                )

    job = run(work())
    rows = [("job", job.id), ("genesis root", job.terms.genesis_root), ("text root", job.terms.data_root)]
    show(job, as_json=as_json, table=lambda: print_fields("job opened", rows))


@app.command("list")
def list_jobs(node: NodeOption = None, as_json: JsonOption = False) -> None:
    """List all jobs."""
    from primitives.amounts import format_tokens

    jobs = ask(node, lambda client: client.every(lambda cursor: client.jobs(cursor)))
    columns = ["job", "state", "settled", "of", "open round", "reward per round", "owner"]
    rows = [
        (
            job.id,
            job.status,
            job.settled_rounds,
            job.terms.num_rounds,
            job.open_round if job.open_round >= 0 else "-",
            format_tokens(job.terms.reward_per_round),
            job.owner,
        )
        for job in jobs
    ]
    show(jobs, as_json=as_json, table=lambda: print_table("jobs", columns, rows, empty="no jobs yet"))


@app.command("show")
def show_job(job_id: JobArgument, node: NodeOption = None, as_json: JsonOption = False) -> None:
    """One job with its members and the state of its training."""
    from primitives.amounts import format_tokens

    async def question(client: Any) -> tuple[Any, Any]:
        return await client.job(job_id), await client.members(job_id)

    job, members = ask(node, question)
    if job is None:
        raise CliError(f"there is no job {job_id} on this chain; outerstep job list shows those there are")
    if as_json:
        show({"job": job, "members": members}, as_json=True, table=lambda: None)
        return
    show_struct(f"job {job_id}", job, as_json=False)
    rows = [
        (member.worker, "yes" if member.active else "no", member.missed, format_tokens(member.earned))
        for member in members
    ]
    print_table("members", ["worker", "active", "missed", "earned"], rows, empty="no worker has joined yet")


@app.command()
def cancel(
    job_id: JobArgument,
    node: NodeOption = None,
    key: KeyOption = None,
    timeout: WaitOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Open no new round of JOB; the one in progress still settles, then the rest of the escrow comes back."""
    from abci_app.messages import CancelJob

    send_and_show(node, key, CancelJob(job_id=job_id), timeout_s=timeout, as_json=as_json)


def _read_plan(path: Path | None) -> dict[str, Any]:
    import tomllib

    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and text that is not UTF-8
        raise CliError(f"{path} is not TOML: {error}") from error
    if not isinstance(values.get("training", {}), dict):
        raise CliError(f"{path}: training should be a table, [training]")
    return values


def _settings(pairs: list[str]) -> dict[str, int | str]:
    """NAME=VALUE pairs; whole numbers become integers."""
    settings: dict[str, int | str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--set {pair!r} should be NAME=VALUE")
        settings[name] = int(value) if WHOLE_NUMBER.fullmatch(value) else value
    return settings


def _standard_text(folder: Path) -> Path:
    """The source text of the standard library, as a file."""
    from node.files import write_atomically
    from training import standard_library_text

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "standard-library.txt"
    write_atomically(path, standard_library_text())
    return path
