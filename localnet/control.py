"""Ending a local network from outside, also one whose `up` was killed."""

import signal
from pathlib import Path
from typing import Final

from localnet.processes import kill_tree, stop_trees, wait_gone
from localnet.state import load_state

STOP_TIMEOUT_S: Final = 60.0


class NotRunning(Exception):
    """Nothing of the network runs."""


def shut_down(home: Path) -> int:
    """Stop the network in `home` and return how many of its nodes were running.

    Raises: StateError when there is no network in the folder, NotRunning when none of its processes lives.
    """
    state = load_state(home)
    owner = state.owner.find()
    supervisors = [found for node in state.nodes if node.supervisor and (found := node.supervisor.find())]
    if owner is None and not supervisors:
        raise NotRunning(f"the local network in {home} is not running")
    if owner is not None:
        owner.send_signal(signal.SIGTERM)
        for survivor in wait_gone([owner], timeout_s=STOP_TIMEOUT_S):
            kill_tree(survivor)
    stop_trees([found for node in state.nodes if node.supervisor and (found := node.supervisor.find())])
    return len(supervisors)
