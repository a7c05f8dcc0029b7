"""The text: tokens, the split into train and held-out, a bigram yardstick, and a text that every machine has."""

import sysconfig
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.errors import CorpusError

HELD_OUT_PERCENT: Final = 5
HELD_OUT_UNIT: Final = 1024
"""The held-out part is the largest whole number of these within the last 5 % of the bytes, and at least one."""
SKIPPED_FOLDERS: Final = frozenset(
    {
        "__pycache__",
        "encodings",
        "idle_test",
        "idlelib",
        "lib-dynload",
        "site-packages",
        "dist-packages",
        "test",
        "tests",
    }
)
"""`encodings` holds generated tables of numbers; the others are tests, installed packages or not source."""
_PAIRS_AT_ONCE: Final = 2**20
"""Bigrams counted together, to bound memory."""


class Corpus:
    """A text as tokens. The alphabet is the set of byte values that occur, so nothing is lost and nothing is unknown.

    The last 5 % are held out (see HELD_OUT_UNIT), the rest is for training; no window crosses the border.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) < 16 * HELD_OUT_UNIT:
            raise CorpusError(f"the text has {len(data)} bytes; at least {16 * HELD_OUT_UNIT} are needed")
        raw = np.frombuffer(data, dtype=np.uint8)
        present = np.bincount(raw, minlength=256) > 0
        self.alphabet: bytes = np.flatnonzero(present).astype(np.uint8).tobytes()
        self.size_bytes = len(data)
        tokens = (np.cumsum(present) - 1).astype(np.uint8)[raw]
        num_held_out = max(1, len(data) * HELD_OUT_PERCENT // 100 // HELD_OUT_UNIT) * HELD_OUT_UNIT
        self.train: NDArray[np.uint8] = tokens[:-num_held_out]
        self.held_out: NDArray[np.uint8] = tokens[-num_held_out:]

    @classmethod
    def from_file(cls, path: Path) -> "Corpus":
        """The text of a file.

        Raises: CorpusError when it cannot be read or is too short.
        """
        return cls(_read(path))

    def held_out_starts(self, block_length: int, max_windows: int | None = None) -> NDArray[np.int64]:
        """Where the held-out windows start: side by side, and evenly thinned out to `max_windows` when there are more.

        A window is `block_length` tokens and the one after; each of its tokens but the first is predicted once.
        Raises: CorpusError when not one window fits.
        """
        count = (len(self.held_out) - 1) // block_length
        if count < 1:
            raise CorpusError(
                f"the held-out text ({len(self.held_out)} tokens) is shorter than a window of {block_length}"
            )
        wanted = count if max_windows is None else max(1, min(count, max_windows))
        return (np.arange(wanted, dtype=np.int64) * count // wanted) * block_length

    def bigram_loss(self, block_length: int | None = None, max_windows: int | None = None) -> float:
        """Held-out loss of add-one bigram counts taken on the training part, nats per token.

        With the arguments of `held_out_starts` it is taken on exactly the tokens that `evaluate` predicts.
        """
        length = (len(self.held_out) - 1) if block_length is None else block_length
        starts = self.held_out_starts(length, max_windows)
        positions = (starts[:, None] + np.arange(length)).ravel()
        before, after = self.held_out[positions], self.held_out[positions + 1]
        return float(-self._bigram_log_probability[before, after].mean())

    @cached_property
    def _bigram_log_probability(self) -> NDArray[np.float64]:
        size = len(self.alphabet)
        counts = np.ones((size, size))
        for start in range(0, len(self.train) - 1, _PAIRS_AT_ONCE):
            part = self.train[start : start + _PAIRS_AT_ONCE + 1].astype(np.int64)
            counts += np.bincount(part[:-1] * size + part[1:], minlength=size * size).reshape(size, size)
        logarithms: NDArray[np.float64] = np.log(counts / counts.sum(axis=1, keepdims=True))
        return logarithms


def standard_library_text(limit_bytes: int | None = None) -> bytes:
    """The source text of Python's standard library: UTF-8 .py files in sorted order, one after the other.

    With `limit_bytes` whole files are taken until the next one would not fit. The same machine gives the same bytes;
    another Python version gives other ones, so a job distributes the text and names its root.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    parts: list[bytes] = []
    total = 0
    for path in _source_files(folder):
        content = _read(path)
        if limit_bytes is not None and total + len(content) > limit_bytes:
            break
        if _is_utf8(content):
            parts.append(content)
            total += len(content)
    if not parts:
        raise CorpusError(f"no Python source text in {folder} fits {limit_bytes} bytes; give a text file instead")
    return b"".join(parts)


def _source_files(folder: Path) -> list[Path]:
    files = [
        path
        for path in folder.rglob("*.py")
        if not SKIPPED_FOLDERS.intersection(path.relative_to(folder).parts[:-1])
        and not path.name.startswith("_sysconfigdata")  # generated for the machine
    ]
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read the text {path}: {error.strerror}") from error


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
