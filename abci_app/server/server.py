"""The Unix socket that CometBFT opens its four connections to (query, snapshot, mempool, consensus).

The event loop frames, parses and checks transactions, whose signatures other processes verify; one consensus thread
executes blocks; a small pool answers queries. So neither a flood of CheckTx nor a slow query stands in the way of a
block.
"""

import asyncio
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from abci_app.server.connection import Connection, Lanes
from abci_app.server.dispatch import AbciApplication, Dispatcher
from abci_app.server.grammar import CallGrammar
from abci_app.verifiers import VerifierProcesses, Verifiers

READ_THREADS: Final = 2
_PROBE_TIMEOUT_S: Final = 2.0


class SocketUnavailable(Exception):
    """The socket path cannot be used; the text says why."""


class AbciServer:
    """Serves one application on one socket."""

    def __init__(
        self,
        application: AbciApplication,
        path: Path,
        *,
        verifiers: Verifiers | None = None,
        grammar: CallGrammar | None = None,
    ) -> None:
        """`verifiers`: None: processes of its own. `grammar`: asserts the order of the calls; a call out of order ends
        `wait` with IllegalCall."""
        self._path = path
        self._grammar = grammar
        self._verifiers = verifiers or VerifierProcesses()
        self._pool = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
        self._consensus = ThreadPoolExecutor(1, thread_name_prefix="consensus")
        self._lanes = Lanes(Dispatcher(application, grammar), self._verifiers, self._pool, self._consensus)
        self._connections: set[Connection] = set()
        self._ended: asyncio.Future[BaseException | None]

    async def start(self) -> None:
        """Listen.

        Raises: SocketUnavailable when another process listens there, or the path cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        loop.set_exception_handler(self._on_loop_error)
        listener = claim_socket(self._path)
        await self._verifiers.start()
        self._server = await loop.create_unix_server(self._connect, sock=listener)

    def stop(self) -> None:
        """Let `wait` return. For signal handlers."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self) -> BaseException | None:
        """Return None after `stop`, or what came out of the application; then nothing more should be served."""
        return await self._ended

    async def close(self) -> None:
        """Stop listening, drop the connections, let running calls finish, remove the socket."""
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        self._pool.shutdown(cancel_futures=True)
        self._consensus.shutdown(cancel_futures=True)
        await self._verifiers.close()
        self._path.unlink(missing_ok=True)

    def _connect(self) -> Connection:
        connection = Connection(self._lanes, self._fail, self._disconnect)
        self._connections.add(connection)
        return connection

    def _disconnect(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._grammar is not None and connection.carried_consensus:
            self._grammar.forget()

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What came out of a callback: a peer that is gone is nothing to us, everything else is a bug."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            loop.default_exception_handler(context)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_result(error)


def claim_socket(path: Path) -> socket.socket:
    """A listening Unix socket at `path` that only this user may connect to. Removes one left by a dead process.

    Raises: SocketUnavailable.
    """
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        listener.bind(str(path))
        os.chmod(path, 0o600)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise SocketUnavailable(f"cannot listen on {path}: {error}") from error
    return listener


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketUnavailable(f"{path} is there already and not a socket; it is left as it is")
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketUnavailable(f"cannot look at {path}: {error}") from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketUnavailable(f"cannot tell whether {path} is in use: {error}") from error
    raise SocketUnavailable(f"another process listens on {path}")
