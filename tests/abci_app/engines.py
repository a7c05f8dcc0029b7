"""Programs of CometBFT that a machine may lack: a reason to skip for a user, a failure where CI says it has them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from node.errors import EngineMissing

REQUIRED_VARIABLE: Final = "OUTERSTEP_ALL_ENGINES"
"""Set by .ci/run, which builds them all."""


def needed(find: Callable[[], Path]) -> Path:
    """What `find` finds; without it the test is skipped, or fails in CI."""
    try:
        return find()
    except EngineMissing as error:
        if os.environ.get(REQUIRED_VARIABLE):
            raise
        pytest.skip(str(error))
