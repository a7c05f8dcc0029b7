"""Building CometBFT's programs with Go, from the module's own source but for one constant of the engine.

CometBFT's ABCI client gathers requests and flushes them by a timer. The constant of the timer is meant in milliseconds
and taken as nanoseconds: whenever the client is busy the timer fires without pause, which takes half of the engine's
processor time under load (docs/performance.md). The engine is built with a millisecond in its place. An engine without
this change, put on PATH, works the same and slower.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from node.errors import EngineMissing
from node.go_toolchain import NETWORK_HINT

MODULE: Final = "github.com/cometbft/cometbft"
ENGINE_PACKAGE: Final = "cmd/cometbft"
ABCI_CLI_PACKAGE: Final = "abci/cmd/abci-cli"
MENDED_FILE: Final = "abci/client/socket_client.go"
AS_PUBLISHED: Final = 'timer.NewThrottleTimer("socketClient", flushThrottleMS)'
MENDED: Final = 'timer.NewThrottleTimer("socketClient", time.Millisecond)'
MENDED_SUFFIX: Final = "+flush1ms"
"""What `cometbft version` says after its number when it was built here, in the place of a commit."""
BUILD_TIMEOUT_S: Final = 1800
_NOT_COPIED: Final = shutil.ignore_patterns("docs", "spec", "*_test.go")


def build_engine(go: Path, version: str, target: Path) -> None:
    """CometBFT `version` with the constant mended, as the program `target`.

    Raises: EngineMissing; OSError when something cannot be written beside `target`.
    """
    source = target.parent / "source"
    shutil.copytree(_module_source(go, version), source, ignore=_NOT_COPIED, copy_function=shutil.copyfile)
    for folder in (source, *(path for path in source.rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # folders of Go's cache are read-only
    mend(source / MENDED_FILE)
    says = f"-X {MODULE}/version.TMGitCommitHash={MENDED_SUFFIX.removeprefix('+')}"
    _run(go, ["build", "-trimpath", "-ldflags", says, "-o", str(target), f"./{ENGINE_PACKAGE}"], source)


def build_abci_cli(go: Path, version: str, target: Path) -> None:
    """CometBFT's abci-cli as it is published, as the program `target`.

    Raises: EngineMissing.
    """
    module = f"{MODULE}/{ABCI_CLI_PACKAGE}@v{version}"
    _run(go, ["install", "-trimpath", module], target.parent, {"GOBIN": str(target.parent)})


def mend(file: Path) -> None:
    """Put the millisecond in its place.

    Raises: EngineMissing when the file is not as expected.
    """
    text = file.read_text()
    if text.count(AS_PUBLISHED) != 1:
        raise EngineMissing(f"{MENDED_FILE} of CometBFT differs from what node/engine_build.py expects to mend")
    file.write_text(text.replace(AS_PUBLISHED, MENDED))


def _module_source(go: Path, version: str) -> Path:
    """The module in Go's cache, downloaded and checked against its checksum when it is not there yet."""
    answer = _run(go, ["mod", "download", "-json", f"{MODULE}@v{version}"], Path.cwd(), wants_output=True)
    try:
        return Path(json.loads(answer)["Dir"])
    except (ValueError, KeyError) as error:
        raise EngineMissing(f"`go mod download` does not say where it put {MODULE}: {answer[:200]}") from error


def _run(
    go: Path,
    arguments: list[str],
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    wants_output: bool = False,
) -> str:
    words = f"`go {' '.join(arguments[:2])}`"
    try:
        ended = subprocess.run(
            [go, *arguments],
            cwd=folder,
            env={**os.environ, "CGO_ENABLED": "0", **environment},
            timeout=BUILD_TIMEOUT_S,
            check=False,
            stdout=subprocess.PIPE if wants_output else None,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineMissing(f"{words} took more than {BUILD_TIMEOUT_S} s. {NETWORK_HINT}") from error
    if ended.returncode != 0:
        raise EngineMissing(f"{words} for CometBFT ended with code {ended.returncode}. {NETWORK_HINT}")
    return ended.stdout or ""
