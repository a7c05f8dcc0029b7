"""Writing files that a reader, also after a crash, finds old or new, but whole."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = True) -> None:
    """Put `data` under `path` so that a reader, also after a crash, finds the old bytes or all the new ones.

    Raises: OSError when the folder cannot be written; nothing is left behind then.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if sync:
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames inside `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
