"""Processor time of the nodes' processes, application and engine apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """User and system time since the processes began."""

    app: float
    engine: float

    def __sub__(self, other: "CpuSeconds") -> "CpuSeconds":
        return CpuSeconds(self.app - other.app, self.engine - other.engine)


@dataclass(frozen=True, slots=True)
class Measured:
    """The processes to measure, of all nodes together. An application built into the engine has none of its own."""

    apps: Sequence[psutil.Process]
    engines: Sequence[psutil.Process]

    def cpu(self) -> CpuSeconds:
        return CpuSeconds(sum(map(_cpu_of, self.apps)), sum(map(_cpu_of, self.engines)))


def _cpu_of(process: psutil.Process) -> float:
    """With the processes below it. One that has ended counts nothing."""
    try:
        return sum(_own(each) for each in (process, *process.children(recursive=True)))
    except psutil.NoSuchProcess:
        return 0.0


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
