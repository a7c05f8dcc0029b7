"""Structured log of a daemon: one JSON object a line into a file; the same for people on standard error, or as it is
for programs on standard output."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger


class DaemonLog:
    """Opens the file for appending; `.logger` is a structlog logger. A context manager that closes the file."""

    def __init__(self, path: Path, *, as_json: bool = False) -> None:
        """`as_json`: the lines of the file go to standard output too, instead of text to standard error.

        Raises: OSError when the file cannot be opened.
        """
        self._file = path.open("a", encoding="utf-8")
        sink = _Sink(self._file, as_json=as_json)
        self.logger: FilteringBoundLogger = structlog.wrap_logger(
            sink,
            processors=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _as_one_argument,
            ],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
        )

    def __enter__(self) -> FilteringBoundLogger:
        return self.logger

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class _Sink:
    """Where the logger writes: `info` and its like take the finished event."""

    def __init__(self, file: TextIO, *, as_json: bool) -> None:
        self._file = file
        self._as_json = as_json
        self._screen = sys.stdout if as_json else sys.stderr

    def write(self, event: EventDict) -> None:
        line = msgspec.json.encode(event, enc_hook=str).decode() + "\n"
        self._file.write(line)
        self._file.flush()
        self._screen.write(line if self._as_json else _for_people(event))
        self._screen.flush()

    debug = info = warning = error = critical = write


def _for_people(event: EventDict) -> str:
    rest = {key: value for key, value in event.items() if key not in ("event", "level", "timestamp")}
    details = " ".join(f"{key}={value}" for key, value in rest.items())
    level = "" if event["level"] == "info" else f"{event['level']}: "
    return f"{str(event['timestamp'])[11:19]} {level}{event['event']}{'  ' if details else ''}{details}\n"


def _as_one_argument(logger: WrappedLogger, method: str, event: EventDict) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (event,), {}
