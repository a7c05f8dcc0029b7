"""Downloads in progress on disk."""

from pathlib import Path

import pytest

from primitives.deals import SEGMENT_BYTES
from storage.errors import DownloadFailed, UnusableFile
from storage.partial import PartialFile
from storage.tree import FileTree
from tests.storage.support import names_in, some_bytes

CONTENT = some_bytes(3 * SEGMENT_BYTES + 1)
ROOT = FileTree.build(CONTENT).root


def piece(index: int) -> bytes:
    return CONTENT[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]


def begin(target: Path, *indices: int) -> None:
    with PartialFile(target, ROOT, len(CONTENT)) as partial:
        partial.resume()
        for index in indices:
            partial.write(index, piece(index))


def held_after_resume(target: Path, root: bytes = ROOT, size: int = len(CONTENT)) -> list[int]:
    with PartialFile(target, root, size) as partial:
        partial.resume()
        return [index for index in range(partial.held.total) if index in partial.held]


def test_what_was_written_is_there_on_resume(tmp_path: Path) -> None:
    begin(tmp_path / "file", 0, 3)
    assert held_after_resume(tmp_path / "file") == [0, 3]
    begin(tmp_path / "file", 1, 2)
    with PartialFile(tmp_path / "file", ROOT, len(CONTENT)) as partial:
        partial.resume()
        partial.finish()
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert names_in(tmp_path) == ["file"]


def test_bytes_that_changed_on_disk_are_fetched_again(tmp_path: Path) -> None:
    begin(tmp_path / "file", 0, 1, 2, 3)
    with open(tmp_path / "file.part", "r+b") as part:
        part.seek(SEGMENT_BYTES + 17)
        part.write(b"stray")
    assert held_after_resume(tmp_path / "file") == [0, 2, 3]


def test_a_part_that_was_cut_or_lost_is_fetched_again(tmp_path: Path) -> None:
    begin(tmp_path / "file", 0, 1, 2, 3)
    with open(tmp_path / "file.part", "r+b") as part:
        part.truncate(SEGMENT_BYTES * 2)
    assert held_after_resume(tmp_path / "file") == [0, 1]
    (tmp_path / "file.part").unlink()
    assert held_after_resume(tmp_path / "file") == []


def test_text_appended_by_another_program_does_not_end_up_in_the_file(tmp_path: Path) -> None:
    begin(tmp_path / "file", 0, 1, 2, 3)
    with open(tmp_path / "file.part", "ab") as part:
        part.write(b"416 Range Not Satisfiable")
    with PartialFile(tmp_path / "file", ROOT, len(CONTENT)) as partial:
        partial.resume()
        partial.finish()
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_the_part_of_another_file_is_not_built_upon(tmp_path: Path) -> None:
    begin(tmp_path / "file", 0)
    assert held_after_resume(tmp_path / "file", root=bytes(32)) == []
    assert held_after_resume(tmp_path / "file") == []


@pytest.mark.parametrize("journal", [b"", b"outerstep part 1", b"\xff" * 500])
def test_a_damaged_journal_means_starting_over(tmp_path: Path, journal: bytes) -> None:
    begin(tmp_path / "file", 0, 1)
    (tmp_path / "file.part.journal").write_bytes(journal)
    assert held_after_resume(tmp_path / "file") == []


def test_a_file_that_is_not_whole_never_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"older")
    begin(tmp_path / "file", 0, 1, 2)
    with PartialFile(tmp_path / "file", ROOT, len(CONTENT)) as partial, pytest.raises(DownloadFailed):
        partial.finish()
    assert (tmp_path / "file").read_bytes() == b"older"
    assert names_in(tmp_path) == ["file"]


def test_two_downloads_of_one_target_do_not_mix(tmp_path: Path) -> None:
    with (
        PartialFile(tmp_path / "file", ROOT, len(CONTENT)),
        pytest.raises(UnusableFile, match="another download"),
    ):
        PartialFile(tmp_path / "file", ROOT, len(CONTENT))
    assert held_after_resume(tmp_path / "file") == []


@pytest.mark.parametrize("name", ["file.part", "file.part.journal"])
def test_symbolic_links_are_not_written_through(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(UnusableFile):
        PartialFile(tmp_path / "file", ROOT, len(CONTENT))
    assert (tmp_path / "outside").read_bytes() == b"precious"


def test_targets_that_cannot_be_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for name in ("directory", "missing/file", "nul\0byte", "../" * 3 + "missing/file"):
        with pytest.raises(UnusableFile):
            PartialFile(tmp_path / name, ROOT, len(CONTENT))
