"""What renames need to last through a power cut."""

import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in folder `path` durable.

    Raises: OSError.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
