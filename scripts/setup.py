"""Set the project up: .venv, pinned packages, CometBFT. Needs Python >= 3.11 with venv, a C compiler and a network.

Run by `make setup` with any suitable interpreter; standard library only. Each step says what it does and how long it
took. A stamp in .venv remembers what was installed, so a second run does nothing.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv"
PYTHON: Final = VENV / "bin" / "python"
UV: Final = VENV / "bin" / "uv"
STAMP: Final = VENV / "outerstep-setup"
INPUTS: Final = ("pyproject.toml", "constraints.txt", "scripts/setup.py")
NETWORK_HINT: Final = (
    "Is the network up, and does a proxy need to be set? "
    "Running the same command again continues where this one stopped."
)


class SetupFailed(Exception):
    """A step did not work; the text says which and what to do."""


def fingerprint() -> str:
    """Changes whenever what should be installed changes."""
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def run(command: list[str | Path], hint: str) -> None:
    """Run `command` in the project folder with its output shown.

    Raises: SetupFailed with `hint` when it cannot start or exits with an error.
    """
    words = [str(word) for word in command]
    environment = {**os.environ, "VIRTUAL_ENV": str(VENV), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        code = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    except OSError as error:
        raise SetupFailed(f"cannot run {words[0]}: {error}\n{hint}") from error
    if code != 0:
        raise SetupFailed(f"`{' '.join(words)}` ended with code {code}.\n{hint}")


def make_environment() -> None:
    if works(PYTHON):
        return
    run(
        [sys.executable, "-m", "venv", "--clear", VENV],
        "Install the venv module of this Python (Debian and Ubuntu: the package python3-venv), "
        "or choose another interpreter with `make setup PYTHON=...`.",
    )


def works(python: Path) -> bool:
    """Whether the environment's interpreter still starts (it does not after its base Python was removed)."""
    if not python.exists():
        return False
    return subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode == 0


def is_complete() -> bool:
    """Whether an earlier run installed just this, and the engine is still where it was."""
    if not (STAMP.is_file() and STAMP.read_text() == fingerprint() and PYTHON.exists()):
        return False
    return subprocess.run([PYTHON, "-m", "node.engine"], cwd=ROOT, capture_output=True, check=False).returncode == 0


def install_uv() -> None:
    if not UV.exists():
        run([PYTHON, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "uv"], NETWORK_HINT)


def install_packages() -> None:
    run(
        [UV, "pip", "install", "--python", PYTHON, "-c", "constraints.txt", "-e", ".[dev]"],
        f"A package that has to be built needs a C compiler (gcc) and make. {NETWORK_HINT}",
    )


def install_engine() -> None:
    run(
        [PYTHON, "-m", "node.engine", "--install"],
        f"CometBFT can also be put on PATH by hand (the version that the message names). {NETWORK_HINT}",
    )


STEPS: Final[tuple[tuple[str, Callable[[], None]], ...]] = (
    ("Python environment in .venv", make_environment),
    ("uv, the package installer", install_uv),
    ("pinned packages (torch is large; the first time takes minutes)", install_packages),
    ("CometBFT: from PATH, else the cache, else built with Go", install_engine),
)


def main() -> int:
    if is_complete():
        print("set-up: done already (`make distclean` before another Python)", flush=True)
        return 0
    for number, (title, step) in enumerate(STEPS, start=1):
        print(f"set-up {number}/{len(STEPS)}: {title}", flush=True)
        started = time.monotonic()
        try:
            step()
        except SetupFailed as error:
            print(f"set-up failed at step {number} ({title}):\n{error}", file=sys.stderr)
            return 1
        print(f"set-up {number}/{len(STEPS)}: done in {time.monotonic() - started:.1f} s", flush=True)
    STAMP.write_text(fingerprint())
    return 0


if __name__ == "__main__":
    sys.exit(main())
