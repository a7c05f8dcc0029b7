"""Finding CometBFT: on PATH, else in the project's cache, else built there with Go.

    python -m node.engine              say which one is used
    python -m node.engine --install    build it into the cache when there is none (25 to 90 s, once)
    python -m node.engine --install --with-abci-cli     and CometBFT's abci-cli beside it, which tests use

The cache is ~/.cache/outerstep (OUTERSTEP_CACHE names another folder). OUTERSTEP_ENGINE_VERSION chooses another of the
supported versions than the default.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node.engine_build import MENDED_SUFFIX, build_abci_cli, build_engine
from node.errors import EngineMissing, SetupError
from node.go_toolchain import find_go

ENGINE_VERSION: Final = "0.38.26"
"""The version that is run where nothing else is said."""
ENGINE_VERSIONS: Final = (ENGINE_VERSION, "0.40.0")
"""What the tests pass with."""
ENGINE_LINE: Final = "0.38."
"""Any version of this line found on PATH is used: they speak the same protocol. Another version comes from the cache
only, since it cannot be told by what it says: 0.40.0 says 0.39.0."""
VERSION_VARIABLE: Final = "OUTERSTEP_ENGINE_VERSION"
CACHE_VARIABLE: Final = "OUTERSTEP_CACHE"


def cache_folder() -> Path:
    """Where the project keeps what it has built; node alone reads the environment."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "outerstep"


def chosen_version() -> str:
    """The version of CometBFT to run.

    Raises: EngineMissing when the variable names one that is not supported.
    """
    version = os.environ.get(VERSION_VARIABLE) or ENGINE_VERSION
    if version not in ENGINE_VERSIONS:
        raise EngineMissing(f"{VERSION_VARIABLE} is {version!r}; it should be one of {', '.join(ENGINE_VERSIONS)}")
    return version


def cached_program(name: str) -> Path:
    """Where the cache holds `cometbft` or `abci-cli` of the chosen version, whether it is there or not.

    Raises: EngineMissing as `chosen_version`.
    """
    return cache_folder() / "bin" / f"{name}-v{chosen_version()}"


def cached_engine() -> Path:
    """Where the cache holds CometBFT as `node.engine_build` builds it, whether it is there or not.

    Raises: EngineMissing as `chosen_version`.
    """
    published = cached_program("cometbft")
    return published.with_name(published.name + MENDED_SUFFIX)


def find_engine() -> Path:
    """The CometBFT to run.

    Raises: EngineMissing with what to do.
    """
    if chosen_version() != ENGINE_VERSION:
        return _of_another_version()
    on_path = shutil.which("cometbft")
    refused = ""
    if on_path:
        version = engine_version(Path(on_path))
        if version and version.startswith(ENGINE_LINE):
            return Path(on_path)
        refused = f" ({on_path} is version {version or 'unknown'}, not {ENGINE_LINE}x)"
    if engine_version(cached_engine()):
        return cached_engine()
    raise EngineMissing(
        f"CometBFT {ENGINE_LINE}x was not found on PATH{refused} nor as {cached_engine()}; run: make setup"
    )


def find_abci_cli() -> Path:
    """CometBFT's abci-cli of the chosen version, in the cache.

    Raises: EngineMissing with what to do.
    """
    found = cached_program("abci-cli")
    if engine_version(found) is None:
        raise EngineMissing(f"{found} is not there; run: python -m node.engine --install --with-abci-cli")
    return found


def _of_another_version() -> Path:
    if engine_version(cached_engine()) is None:
        raise EngineMissing(
            f"{cached_engine()} is not there ({VERSION_VARIABLE} chooses it); run: python -m node.engine --install"
        )
    return cached_engine()


def engine_version(path: Path) -> str | None:
    """What `path version` says, such as 0.38.26; None when it is not a program that says so."""
    try:
        answer = subprocess.run([path, "version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = re.match(r"v?(\d+\.\d+\.\d+\S*)", answer.stdout.strip())
    return found.group(1) if answer.returncode == 0 and found else None


def install_engine() -> Path:
    """Find CometBFT or build it into the cache, saying on standard output what is done; nothing is done twice.

    Raises: EngineMissing.
    """
    chosen_version()
    try:
        found = find_engine()
    except EngineMissing:
        found = _build(build_engine, cached_engine())
    else:
        print(f"CometBFT: {found} (says {engine_version(found)})", flush=True)
    return found


def install_abci_cli() -> Path:
    """The same for abci-cli.

    Raises: EngineMissing.
    """
    chosen_version()
    try:
        found = find_abci_cli()
    except EngineMissing:
        found = _build(build_abci_cli, cached_program("abci-cli"))
    else:
        print(f"abci-cli: {found} (says {engine_version(found)})", flush=True)
    return found


def _build(build: Callable[[Path, str, Path], None], target: Path) -> Path:
    go, version = find_go(), chosen_version()
    name = target.name.partition("-v")[0]
    workshop = cache_folder() / f"build-{os.getpid()}"
    print(f"building {name} {version} with {go} (once; 25 to 90 s on most machines)", flush=True)
    started = time.monotonic()
    try:
        workshop.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        built = workshop / name
        build(go, version, built)
        if engine_version(built) is None:
            raise EngineMissing(f"Go built {built}, but it does not run")
        os.replace(built, target)
    except OSError as error:
        raise EngineMissing(f"cannot write {error.filename or target}: {error.strerror}") from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    print(f"built {target} in {time.monotonic() - started:.0f} s", flush=True)
    return target


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m node.engine", description="Find CometBFT, or build it.")
    parser.add_argument("--install", action="store_true", help="build it into the cache when there is none")
    parser.add_argument("--with-abci-cli", action="store_true", help="with --install: build abci-cli too (for tests)")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.install:
            install_engine()
            if chosen.with_abci_cli:
                install_abci_cli()
        else:
            print(find_engine())
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
