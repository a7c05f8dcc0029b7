"""Mount and network namespaces of our own, so that small disks, links and routes go with the last process of the run.

Whatever happens to it: nothing of them is seen, or left behind, outside.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

ISOLATED: Final = "OUTERSTEP_CHAOS_ISOLATED"
"""Set inside the namespaces, so that they are entered once."""
PROBE: Final = "mount -t tmpfs -o size=64k tmpfs /mnt && ip link set lo up && ip link add outerstep type bridge"
PROBE_S: Final = 10.0


def isolate(arguments: Sequence[str], module: str = "localnet.chaos") -> str | None:
    """Go on in namespaces of our own: as root directly, else as root of a user namespace of our own.

    Replaces this process by one that runs `python -m module` with the same arguments, and does not return then.
    Returns None once inside, else why nothing can be mounted and no network laid out here.
    """
    if os.environ.get(ISOLATED):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=PROBE_S)
        return None
    flags = ["--mount", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    reason = _why_not(flags)
    if reason is not None:
        return reason
    command = ["unshare", *flags, "--", sys.executable, "-m", module, *arguments]
    os.execvpe("unshare", command, {**os.environ, ISOLATED: "1"})


def _why_not(flags: Sequence[str]) -> str | None:
    """Why PROBE fails in namespaces made with `flags`; None when it does not."""
    try:
        probe = ["unshare", *flags, "--", "sh", "-c", PROBE]
        answer = subprocess.run(probe, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no namespaces of our own: {error}"
    return f"no namespaces of our own: {(answer.stderr or answer.stdout).strip()}" if answer.returncode else None
