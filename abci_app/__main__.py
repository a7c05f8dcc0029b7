"""The application as a process: ``python -m abci_app --socket PATH --data DIR``.

Exit status: 0 stopped by SIGTERM or SIGINT; 1 something came out of the application that should not have; 2 cannot
start (the reason is on stderr).
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

import structlog
import uvloop

from abci_app.application import Application, CallOrderError
from abci_app.failpoints import VARIABLE, UnknownFailPoint, arm
from abci_app.params import GenesisError
from abci_app.server.grammar import CallGrammar, IllegalCall
from abci_app.server.server import AbciServer, SocketUnavailable
from abci_app.snapshots.taking import Snapshots
from abci_app.store import Store, StoreError

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
ASSERT_ORDER_VARIABLE: Final = "OUTERSTEP_ASSERT_ABCI"
"""Names a file: as --assert-call-order, and a call that breaks the order is written there too."""
_log = structlog.get_logger()


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal; returns the exit status."""
    options = _parse(arguments)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[options.log_level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    try:
        arm(os.environ.get(VARIABLE))
        with Store(options.data) as store:
            if options.check:
                print(f"checked {store.check_integrity()} keys", file=sys.stderr)
            application = _application(store, options)
            _collect_rarely()
            try:
                return uvloop.run(_serve(application, store, options.socket, _call_grammar(options.assert_call_order)))
            finally:
                application.close()
    except (StoreError, SocketUnavailable, UnknownFailPoint) as error:
        print(f"abci_app: {error}", file=sys.stderr)
        return 2


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m abci_app", description="outerstep's chain application (ABCI 2.0)")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen on")
    parser.add_argument("--data", type=Path, required=True, help="folder of the database (made when missing)")
    parser.add_argument("--check", action="store_true", help="hash the whole state again before serving")
    parser.add_argument(
        "--assert-call-order", action="store_true", help="stop at a call that ABCI's grammar does not allow (for tests)"
    )
    parser.add_argument(
        "--snapshots", type=Path, help="folder of the snapshots (default: `snapshots` beside the database)"
    )
    parser.add_argument(
        "--snapshot-interval", type=int, default=0, help="take one every so many blocks (default 0: never)"
    )
    parser.add_argument("--snapshot-keep", type=int, default=2, help="how many to keep (default 2)")
    parser.add_argument("--log-level", choices=sorted(_LEVELS), default="info")
    options = parser.parse_args(arguments)
    if options.snapshot_interval < 0 or options.snapshot_keep < 1:
        parser.error("--snapshot-interval should be 0 or more, --snapshot-keep 1 or more")
    return options


def _application(store: Store, options: argparse.Namespace) -> Application:
    """Raises: StoreError when the folder of the snapshots cannot be used."""
    folder = options.snapshots or options.data.with_name("snapshots")
    try:
        snapshots = Snapshots(folder, interval_blocks=options.snapshot_interval, keep=options.snapshot_keep)
        return Application(store, snapshots, works_ahead=True)
    except OSError as error:
        raise StoreError(f"cannot use the folder of snapshots {folder}: {error}") from error


def _collect_rarely() -> None:
    """Nearly everything here dies with its last reference; looking for cycles among a hundred thousand transactions
    every few blocks took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _call_grammar(asked_for: bool) -> CallGrammar | None:
    report = os.environ.get(ASSERT_ORDER_VARIABLE)
    return CallGrammar(Path(report) if report else None) if asked_for or report else None


async def _serve(application: Application, store: Store, socket_path: Path, grammar: CallGrammar | None) -> int:
    server = AbciServer(application, socket_path, grammar=grammar)
    await server.start()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, server.stop)
    committed = store.committed
    print(
        f"abci_app ready socket={socket_path} height={committed.height} app_hash={committed.app_hash.hex()}", flush=True
    )
    failure = await server.wait()
    await server.close()
    if failure is None:
        return 0
    expected = isinstance(failure, StoreError | GenesisError | CallOrderError | IllegalCall)
    _log.error(
        "stopping, since going on could fork the chain", reason=str(failure), exc_info=None if expected else failure
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
