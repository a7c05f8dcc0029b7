"""The small disk: full to the last byte, freed, and gone with what was on it kept or not. In a namespace of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from localnet import chaos

ROOT = Path(chaos.__file__).parent.parent.parent


def in_namespace(folder: Path, program: str) -> str:
    """Run `program` with `disk` on `folder` where mounts are its own; what it prints."""
    head = f"from pathlib import Path\nfrom localnet.chaos.disk import SmallDisk\nfolder = Path({str(folder)!r})\n"
    flags = ["--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine permits no mount namespaces")
    command = ["unshare", *flags, "--", sys.executable, "-c", head + textwrap.dedent(program)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "old").write_text("before")
    said = in_namespace(
        folder,
        """
        disk = SmallDisk(folder, size_mib=4)
        assert disk.fill() > 3 << 20
        assert disk.free_bytes == 0
        assert disk.fill() == disk.fill()
        try:
            (folder / "new").write_bytes(bytes(8192))
        except OSError as error:
            print(error.strerror)
        disk.free()
        (folder / "new").write_bytes(bytes(8192))
        disk.remove(keep=True)
        """,
    )
    assert said == "No space left on device\n"
    assert (folder / "old").read_text() == "before"
    assert (folder / "new").stat().st_size == 8192
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_what_was_on_the_disk_goes_with_it_unless_it_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    in_namespace(
        folder, "disk = SmallDisk(folder, size_mib=4)\n(folder / 'new').write_text('x')\ndisk.remove(keep=False)"
    )
    assert list(folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_disk_that_cannot_be_mounted_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "old").write_text("before")
    said = in_namespace(
        folder,
        """
        from localnet.chaos.disk import DiskError
        try:
            SmallDisk(folder, size_mib=-1)
        except DiskError as error:
            print("refused")
        """,
    )
    assert said == "refused\n"
    assert (folder / "old").read_text() == "before"
