"""Shared and private state on disk as one whole: a folder that is filled aside and renamed into place."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node.files import sync_folder, write_atomically
from training import SharedState
from training.errors import TrainingError

KEPT: Final = 2
SHARED_FILE: Final = "shared.safetensors"
PRIVATE_FILE: Final = "private.bin"


class SavedStates:
    """Folders numbered in the order of saving, each with both files; the newest two are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, shared: SharedState, save_private: Callable[[Path], None]) -> None:
        """Durable when this returns; `save_private` writes the private state to the path it is given.

        Raises: OSError when the disk refuses; what was saved before stays.
        """
        numbers = self._numbers()
        making = Path(tempfile.mkdtemp(dir=self._folder, prefix="making-"))
        try:
            write_atomically(making / SHARED_FILE, shared.to_bytes())
            save_private(making / PRIVATE_FILE)
            os.replace(making, self._folder / str(numbers[-1] + 1 if numbers else 1))
            sync_folder(self._folder)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
        for old in self._numbers()[:-KEPT]:
            shutil.rmtree(self._folder / str(old), ignore_errors=True)

    def newest(self) -> tuple[SharedState, Path] | None:
        """The newest saved state that is whole, and where its private part is; clears what was left half made.

        A shared part that can be read is whole; of the private part only the trainer can say so.
        """
        for making in self._folder.glob("making-*"):
            shutil.rmtree(making, ignore_errors=True)
        for number in reversed(self._numbers()):
            folder = self._folder / str(number)
            if not (folder / PRIVATE_FILE).is_file():
                continue
            try:
                return SharedState.from_bytes((folder / SHARED_FILE).read_bytes()), folder / PRIVATE_FILE
            except (OSError, TrainingError):
                continue
        return None

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())
