"""The four worker processes: `outerstep worker run`, one thread each, behind everything else in priority."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil

from localnet.demo.report import CHECKPOINTS_KEPT
from localnet.logs import last_lines
from localnet.processes import spawn, stop_trees
from localnet.state import NodeState
from node.keys import write_key
from primitives.keys import PrivateKey

NICENESS: Final = 10
"""The nodes share the machine with the workers; blocks should not wait for training."""
LOG_BLOCKS: Final = 30
"""How long a worker's log stays in the temporary tier."""
LOG_EVERY_ROUNDS: Final = 3


class WorkerFailed(Exception):
    """A worker process ended before the job was done; the text has its last words."""


@dataclass(frozen=True, slots=True)
class DemoWorker:
    name: str
    key: PrivateKey
    home: Path
    process: psutil.Popen

    @property
    def log(self) -> Path:
        return self.home.parent / f"{self.name}.log"


class Workers:
    """Worker i talks to node i first and to the others when that one does not answer. A context manager."""

    def __init__(self, folder: Path, nodes: Sequence[NodeState], job_id: int, keys: Sequence[PrivateKey]) -> None:
        self._folder = folder
        self._nodes = nodes
        self._job_id = job_id
        self._keys = keys
        self.all: list[DemoWorker] = []

    def __enter__(self) -> "Workers":
        try:
            for index, key in enumerate(self._keys):
                self.all.append(self._start(index, key))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        stop_trees([worker.process for worker in self.all])

    @property
    def running(self) -> int:
        return sum(worker.process.poll() is None for worker in self.all)

    def check(self) -> None:
        """Raises: WorkerFailed when a worker has ended with an error."""
        for worker in self.all:
            code = worker.process.poll()
            if code:
                words = "\n".join(f"  {line}" for line in last_lines(worker.log, 8))
                raise WorkerFailed(f"{worker.name} ended with code {code}; its last words ({worker.log}):\n{words}")

    def _start(self, index: int, key: PrivateKey) -> DemoWorker:
        name = f"worker{index}"
        home, key_file = self._folder / name, self._folder / f"{name}-key.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_key(key_file, key)
        turn = [*self._nodes[index % len(self._nodes) :], *self._nodes[: index % len(self._nodes)]]
        command: list[str | Path] = [Path(sys.executable).with_name("outerstep"), "worker", "run"]
        command += ["--job", str(self._job_id), "--key", key_file, "--home", home, "--threads", "1"]
        command += ["--keep-checkpoints", str(CHECKPOINTS_KEPT), "--log-duration", str(LOG_BLOCKS)]
        command += ["--log-every", str(LOG_EVERY_ROUNDS)]
        for node in turn:
            command += ["--node", node.url]
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = spawn(command, self._folder / f"{name}.log", one_thread)
        process.nice(NICENESS)
        return DemoWorker(name=name, key=key, home=home, process=process)
