"""Port numbers for tests that need several in a row."""

import socket
from contextlib import ExitStack
from itertools import count

FIRST_PORT = 21_000
"""Below the range from which the kernel takes the ports of outgoing connections."""
_starts = count(FIRST_PORT, 10)


def free_ports(number: int) -> int:
    """The first of `number` ports in a row on 127.0.0.1 that nobody uses now.

    Raises: OSError when there are none below 32000.
    """
    for start in _starts:
        if start > 32_000:
            raise OSError(f"no {number} free ports in a row below 32000")
        try:
            with ExitStack() as sockets:
                for port in range(start, start + number):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return start
    raise AssertionError("count() has no end")
