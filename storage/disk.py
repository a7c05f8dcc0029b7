"""Small steps on the file system that either happen wholly, and outlast a power cut, or not at all."""

import errno
import fcntl
import os
import secrets
import shutil
from pathlib import Path

from storage.errors import OverBudget, UnwritableStore


def write_new(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file that is not there yet; with `sync` its bytes have reached the disk when this returns.

    Raises: OverBudget when the disk is full, UnwritableStore for other refusals of the system; the file is gone then.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise explain(error, path) from error


def write_atomically(path: Path, data: bytes, *, scratch: Path, sync: bool = True) -> None:
    """Put `data` at `path` by way of a new file in `scratch` (same file system). A reader sees old or new, whole.

    Raises: as `write_new`.
    """
    part = scratch / secrets.token_hex(12)
    write_new(part, data, sync=sync)
    try:
        os.replace(part, path)
        if sync:
            sync_directory(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise explain(error, path) from error


def explain(error: OSError, path: Path) -> OverBudget | UnwritableStore:
    """Our error for the system's."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OverBudget(f"the disk is full: {path}")
    return UnwritableStore(f"cannot write {path}: {error.strerror or error}")


def sync_directory(path: Path) -> None:
    """Make renames, creations and removals in this directory outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int:
    """Hold `path` for this process; the lock goes with the returned descriptor.

    Raises: UnwritableStore when another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UnwritableStore(f"{path.parent} is in use by another process") from error
    return descriptor


def empty_directory(path: Path) -> None:
    """Remove everything inside `path`, which is created where missing."""
    path.mkdir(parents=True, exist_ok=True)
    for entry in list(path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
