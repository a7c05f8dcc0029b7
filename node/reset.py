"""Throw a node's copy of the chain away, so that it starts over from the other nodes.

    python -m node.reset --home DIR

Kept: keys, configuration, genesis, DA rows, files, and CometBFT's signing state (so that the validator cannot sign a
height twice). A network whose nodes are all reset starts again at its genesis, and validators will not sign heights
that they have signed before.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

from node.checks import single_instance
from node.config import load_config
from node.errors import SetupError

SIGNING_STATE: Final = "priv_validator_state.json"
CHAIN_DATA: Final = ("data/app", "data/app.restoring", "data/app.restored", "data/snapshots")
"""What the application keeps of the chain."""


def reset_chain(home: Path) -> None:
    """Remove the application's state, its snapshots, and CometBFT's blocks.

    Raises: SetupError when there is no node, it runs, or something cannot be removed.
    """
    load_config(home)
    with single_instance(home):
        try:
            for path in [*(home / name for name in CHAIN_DATA), *sorted((home / "cometbft/data").iterdir())]:
                if path.name != SIGNING_STATE:
                    _remove(path)
        except OSError as error:
            raise SetupError(f"cannot remove {error.filename}: {error.strerror}") from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m node.reset", description="Let a node start over from the others.")
    parser.add_argument("--home", type=Path, required=True, help="the node's folder")
    chosen = parser.parse_args(arguments)
    try:
        reset_chain(chosen.home.absolute())
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{chosen.home}: the chain's copy is gone; start the node to fetch it again from its peers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
