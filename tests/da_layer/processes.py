"""Row servers as separate processes, all members of service set 1 with equal stakes, for tests."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primitives.blobs import ServiceMember, ServiceSet
from primitives.encoding import encode
from primitives.keys import PrivateKey
from tests.da_layer.row_server import service_key

ROOT = Path(__file__).parents[2]


@dataclass
class NodeProcess:
    """One row server."""

    path: Path
    process: subprocess.Popen[str]
    member: ServiceMember
    first_peak_mib: float
    """Of its memory, before anything was asked of it."""
    last_words: dict[str, Any] = field(default_factory=dict)
    """Peak of its memory and its metrics at the end."""

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        words: dict[str, Any] = json.loads(self.process.stdout.readline())
        return words

    def end(self) -> None:
        """In order: its last words are there afterwards."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.last_words = self.hear()
        assert self.process.wait(10) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class NodeProcesses:
    """All of them, by number."""

    nodes: list[NodeProcess]
    members: ServiceSet

    def end(self) -> None:
        for node in self.nodes:
            node.end()


@contextlib.contextmanager
def node_processes(folder: Path, count: int = 4, *, liars: Collection[int] = ()) -> Iterator[NodeProcesses]:
    """`count` servers with data in folder/nodeN; those of `liars` serve wrong rows. Killed at the end."""
    nodes: list[NodeProcess] = []
    try:
        for number in range(count):
            nodes.append(_start(folder / f"node{number}", number, lies=number in liars))
        members = ServiceSet(1, tuple(sorted((node.member for node in nodes), key=lambda member: member.operator)))
        for node in nodes:
            node.tell(encode(members).hex())
            assert node.hear()["ready"]
        yield NodeProcesses(nodes, members)
    finally:
        for node in nodes:
            node.kill()


def _start(path: Path, number: int, *, lies: bool) -> NodeProcess:
    command = [sys.executable, "-m", "tests.da_layer.row_server", str(path), str(number), *(["--lie"] if lies else [])]
    with path.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    words = json.loads(process.stdout.readline())
    operator = PrivateKey.from_seed(f"operator {number}").address
    member = ServiceMember(operator, 1, service_key(number).public_key, words["url"])
    return NodeProcess(path, process, member, words["peak_mib"])
