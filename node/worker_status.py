"""HOME/status.json: what a worker is doing, for people and for live tables."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from node.worker_home import DaemonHome

SHORTEST_PAUSE_S: Final = 0.3
"""Steps are shown at most this often."""


class WorkerStatus:
    """Fields of the file; written whole at each change that matters, from any thread.

    `job`, `account`, `pid`, `updated_s` (Unix time), `state` (starting, waiting, training, committed, revealing,
    revealed, aggregating, attested, done, stopped), `height`, `round`, `phase`, `step` and `num_steps` (inner steps),
    `loss` (nats, of the last step), `settled_rounds`, `bytes_sent` (payloads), `earned` (10^-6 token).
    """

    def __init__(self, home: DaemonHome, on_step: Callable[[int, int], None] | None = None, **fields: Any) -> None:
        self._home = home
        self._on_step = on_step
        self._fields: dict[str, Any] = {
            "state": "starting",
            "height": 0,
            "round": -1,
            "phase": "",
            "step": 0,
            "num_steps": 0,
            "loss": None,
            "settled_rounds": 0,
            "bytes_sent": 0,
            "earned": 0,
            "pid": os.getpid(),
            **fields,
        }
        self._lock = threading.Lock()
        self._written_s = 0.0

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def update(self, **fields: Any) -> None:
        """Change fields and write the file when anything is new."""
        with self._lock:
            if any(self._fields.get(name) != value for name, value in fields.items()):
                self._fields.update(fields)
                self._write()

    def step(self, step: int, num_steps: int, loss: float) -> None:
        """After an inner step (counted from 1 here); written only so often."""
        if self._on_step is not None:
            self._on_step(step, num_steps)
        with self._lock:
            self._fields.update(step=step, num_steps=num_steps, loss=loss)
            if time.monotonic() - self._written_s > SHORTEST_PAUSE_S or step == num_steps:
                self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        self._home.write_status({**self._fields, "updated_s": time.time()})
