"""The logs of the nodes, one after the other or as they grow."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from localnet.state import NodeState

POLL_S: Final = 0.3
LOG_FOLDER: Final = "logs"
"""Inside a node's home: one file for each of its processes."""


def log_files(node: NodeState) -> list[Path]:
    """The node's log files, sorted by name."""
    return sorted(Path(node.home, LOG_FOLDER).glob("*.log"))


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines of a file, without line ends; empty when it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=count)]
    except OSError:
        return []


def tail(nodes: Sequence[NodeState], count: int) -> Iterator[str]:
    """The last `count` lines of every log of `nodes`, each with the name of its node and file in front."""
    for node in nodes:
        for path in log_files(node):
            for line in last_lines(path, count):
                yield f"{node.name}/{path.stem} | {line}"


def follow(nodes: Sequence[NodeState], wait: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """New lines as they are written, for ever; picks up files that appear later or are replaced."""
    places = {path: path.stat().st_size for node in nodes for path in log_files(node)}
    while True:
        for node in nodes:
            for path in log_files(node):
                lines, places[path] = _new_lines(path, places.get(path, 0))
                for line in lines:
                    yield f"{node.name}/{path.stem} | {line}"
        wait(POLL_S)


def _new_lines(path: Path, start: int) -> tuple[list[str], int]:
    """Whole lines after byte `start`, and the place after them; a file that shrank is read from its beginning."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < start:
                start = 0
            file.seek(start)
            data = file.read()
    except OSError:
        return [], start
    whole, newline, _ = data.rpartition(b"\n")
    if not newline:
        return [], start
    return whole.decode(errors="replace").split("\n"), start + len(whole) + 1
