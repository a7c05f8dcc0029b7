"""What is being prepared or done, said on standard error; with a bar where somebody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from node.cli.output import progress_bar

Tell = Callable[[int, int], None]
"""How much is done, of how much."""


@contextmanager
def step(text: str) -> Iterator[Tell]:
    """One part of the work; feed what it gives."""
    if not sys.stderr.isatty():
        say(text)
    with progress_bar(text) as tell:
        yield tell


def say(text: str) -> None:
    typer.echo(f"load: {text}", err=True)
