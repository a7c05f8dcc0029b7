"""Port numbers for servers that tests start, several in a row."""

import socket
from contextlib import ExitStack
from itertools import count
from typing import Final

FIRST_PORT: Final = 21_000
LAST_PORT: Final = 26_599
"""Above it are the ranges that local networks claim, and then those that the kernel takes for outgoing connections."""
SPACING: Final = 10

_starts = count(FIRST_PORT, SPACING)
_claims: list[socket.socket] = []


def free_ports(number: int) -> int:
    """The first of `number` ports in a row on 127.0.0.1 that nobody uses now and no other test takes.

    Tests run in several processes, and a port is still needed while its server is restarted: a claim, which is
    listening on the last port of the ten, holds until this process ends.

    Raises: OSError when there are none left.
    """
    assert 0 < number < SPACING
    for start in _starts:
        if start > LAST_PORT:
            raise OSError(f"no {number} free ports in a row from {FIRST_PORT} to {LAST_PORT}")
        try:
            claim = socket.create_server(("127.0.0.1", start + SPACING - 1))
        except OSError:
            continue
        try:
            with ExitStack() as sockets:
                for port in range(start, start + number):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return start
    raise AssertionError("count() has no end")
