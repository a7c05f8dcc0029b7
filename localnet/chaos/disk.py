"""A small disk of its own for one node's home, and a balloon that fills it to the last byte.

The disk is a tmpfs, mounted in a mount namespace that this process and its children share with nobody (see
`isolation`): it goes with the last of them, whatever happens.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

BALLOON: Final = "balloon"
DISK_MIB: Final = 512
LARGEST_PIECE_BYTES: Final = 1 << 24
SMALLEST_PIECE_BYTES: Final = 1 << 12
COMMAND_S: Final = 10.0


class DiskError(Exception):
    """The disk cannot be made or removed; the text says why."""


class SmallDisk:
    """A tmpfs in the place of `folder`, holding what was there."""

    def __init__(self, folder: Path, *, size_mib: int = DISK_MIB) -> None:
        """Mounts it. Nothing may be using the folder.

        Raises: DiskError, with the folder as it was.
        """
        self.folder = folder
        self._aside = folder.with_name(f"{folder.name}.aside")
        try:
            folder.rename(self._aside)
            folder.mkdir(mode=0o700)
            _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0700", "tmpfs", str(folder))
            shutil.copytree(self._aside, folder, dirs_exist_ok=True)
        except OSError as error:
            raise DiskError(f"no small disk for {folder}: {error}") from error
        except DiskError:
            folder.rmdir()
            self._aside.rename(folder)
            raise

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def fill(self) -> int:
        """Blow the balloon up until nothing more fits; returns its size in bytes."""
        path = self.folder / BALLOON
        piece = LARGEST_PIECE_BYTES
        with path.open("ab") as balloon:
            while piece >= SMALLEST_PIECE_BYTES:
                size = os.fstat(balloon.fileno()).st_size
                try:
                    os.posix_fallocate(balloon.fileno(), size, piece)
                except OSError:
                    piece //= 2
        return path.stat().st_size

    def free(self) -> None:
        """Let the balloon go."""
        (self.folder / BALLOON).unlink(missing_ok=True)

    def remove(self, *, keep: bool) -> None:
        """Put the folder back where it was; with `keep` it holds what is on the disk now, else what it held before.
        Nothing may be using it any more.

        Raises: DiskError.
        """
        self.free()
        try:
            if keep:
                shutil.rmtree(self._aside)
                shutil.copytree(self.folder, self._aside, ignore=shutil.ignore_patterns("*.sock"))
            _run("umount", str(self.folder))
            self.folder.rmdir()
            self._aside.rename(self.folder)
        except OSError as error:
            raise DiskError(f"cannot take the small disk of {self.folder} away: {error}") from error


def _run(*command: str) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if answer.returncode:
        raise DiskError((answer.stderr or answer.stdout).strip())
