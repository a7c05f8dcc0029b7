"""Where the figures were measured, and with what."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from node.engine import engine_version, find_engine

PACKAGES: Final = ("outerstep", "coincurve", "msgspec", "plyvel", "protobuf", "uvloop")
"""Those that the speed of a node depends on."""


def describe_machine() -> dict[str, str | int | float]:
    """`engine` is the program's file, whose name says when it was built with a change of ours (node.engine_build).

    Raises: SetupError when there is no engine.
    """
    engine = find_engine()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_mib": psutil.virtual_memory().total // 2**20,
        "load_average_before": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cometbft": engine_version(engine) or "unknown",
        "engine": engine.name,
        **{name: version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    """As the kernel names it, where it does."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
