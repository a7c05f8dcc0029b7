"""What commands print: JSON or rich tables on standard output, progress bars and errors on standard error."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

from node.cli.options import CliError

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
WIDTH: Final = 160
"""Columns of tables that do not go to a terminal."""


class OutcomeGroup(TyperGroup):
    """The root of all commands: an expected error becomes one line on standard error and exit code 1."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):  # as --help does: nothing went wrong, so nothing more is imported
            raise
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except expected_errors() as error:
            typer.echo(f"error: {one_line(error)}", err=True)
            raise typer.Exit(1) from error


def one_line(error: BaseException) -> str:
    """What went wrong, for people; of the operating system's errors the file, the reason and what to look at."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return (
            f"cannot use {_path_text(error.filename)}: {error.strerror}; check the path, its permissions and the disk"
        )
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines)


def _path_text(path: object) -> str:
    return path.decode(errors="replace") if isinstance(path, bytes) else str(path)


def expected_errors() -> tuple[type[BaseException], ...]:
    """What can go wrong in a command without being a bug. Imported only once something has gone wrong."""
    from abci_app.errors import InvalidTransaction
    from da_layer.errors import DaError
    from node.errors import NodeError
    from node.worker_home import DaemonError
    from primitives.amounts import AmountError
    from primitives.keys import KeyFormatError
    from storage.errors import StorageError
    from training.errors import TrainingError

    classes: list[type[BaseException]] = [CliError, NodeError, DaemonError, InvalidTransaction]
    classes += [DaError, StorageError, TrainingError, AmountError, KeyFormatError, OSError]
    return tuple(classes)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run an asynchronous command to its end.

    What libraries log goes to standard error, from warnings on: standard output holds the answer alone.
    """
    import structlog

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    try:
        return asyncio.run(work)
    finally:
        structlog.configure(**before)


def print_json(value: object) -> None:
    """One JSON document; structs and byte strings in the form of `node.jsonform`."""
    from node.jsonform import to_json

    typer.echo(json.dumps(to_json(value), indent=2))


def show(value: object, *, as_json: bool, table: Callable[[], None]) -> None:
    """Print `value` as JSON, or call `table` for people."""
    if as_json:
        print_json(value)
    else:
        table()


def print_fields(title: str, fields: Iterable[tuple[str, object]]) -> None:
    """A two-column table of names and values."""
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left", box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, text(value))
    table.min_width = min(len(title), screen().width)
    screen().print(table)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table with a heading; `empty` is what to say when there is no row."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(text(cell) for cell in row))
    screen().print(table if table.row_count else empty, markup=False)


def screen() -> "Console":
    """Standard output; wide enough for hashes where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH)


def text(value: object) -> str:
    """A cell: addresses as `outer1…`, other bytes as hex, sequences joined by commas."""
    from node.jsonform import bytes_to_text

    if isinstance(value, bytes):
        return bytes_to_text(value) if value else "-"
    if isinstance(value, tuple | list):
        return ", ".join(text(item) for item in value) or "-"
    return str(value)


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, fed by calls with (done, total) bytes or pieces; silent where `quiet`."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet or not sys.stderr.isatty()) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
