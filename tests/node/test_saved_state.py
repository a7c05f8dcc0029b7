"""FAULTS T8: shared and private state are one save; a kill at any point leaves the last whole one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from node import saved_state
from node.saved_state import KEPT, PRIVATE_FILE, SHARED_FILE, SavedStates
from tests.training.helpers import WORKER, fresh_trainer, settle, tiny_config
from training import SharedState, Trainer
from training.errors import PrivateStateError

torch.set_num_threads(1)


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def states(tmp_path: Path) -> SavedStates:
    return SavedStates(tmp_path)


def rounds(count: int) -> list[tuple[SharedState, Callable[[Path], None]]]:
    """States after so many rounds of one worker, with what saves its private part."""
    trainer = fresh_trainer(tiny_config())
    shared = SharedState.genesis(trainer.config)
    made: list[tuple[SharedState, Callable[[Path], None]]] = []
    for index in range(count):
        shared = settle(trainer, shared, index)
        made.append((shared, _saver(trainer)))
    return made


def _saver(trainer: Trainer) -> Callable[[Path], None]:
    state, pending = trainer._state, trainer._pending

    def save(path: Path) -> None:
        copy = fresh_trainer(trainer.config)
        copy._state, copy._pending = state, pending
        copy.save(path)

    return save


def accepted_round(private: Path) -> int:
    trainer = fresh_trainer(tiny_config(), WORKER)
    trainer.load(private)
    return trainer.last_accepted_round


def test_both_parts_come_back_from_the_same_round(states: SavedStates) -> None:
    for shared, save_private in rounds(3):
        states.save(shared, save_private)
        found = states.newest()
        assert found is not None
        assert found[0].root == shared.root
        assert accepted_round(found[1]) == found[0].round_index


def test_an_empty_folder_holds_no_state(states: SavedStates) -> None:
    assert states.newest() is None


def test_the_newest_two_are_kept(states: SavedStates, tmp_path: Path) -> None:
    made = rounds(4)
    for shared, save_private in made:
        states.save(shared, save_private)
    folders = sorted(tmp_path.iterdir(), key=lambda path: int(path.name))
    kept = [SharedState.from_bytes((folder / SHARED_FILE).read_bytes()).round_index for folder in folders]
    assert kept == [2, 3]
    assert len(folders) == KEPT


@pytest.mark.parametrize("moment", ["write_atomically", "private", "replace", "sync_folder"])
def test_killed_at_any_point_of_a_save_one_whole_state_is_found(
    states: SavedStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The process ends: what `except` would have cleaned up stays on disk."""
    (first, save_first), (second, save_second) = rounds(2)
    states.save(first, save_first)

    def die(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(shutil, "rmtree", lambda *arguments, **options: None)
        if moment == "replace":
            dying.setattr(saved_state.os, "replace", die)
        elif moment != "private":
            dying.setattr(saved_state, moment, die)
        with pytest.raises(Killed):
            states.save(second, die if moment == "private" else save_second)
    found = SavedStates(tmp_path).newest()
    assert found is not None
    shared, private = found
    assert shared.root in (first.root, second.root)
    assert accepted_round(private) == shared.round_index, "model and private state are of one round"
    assert not list(tmp_path.glob("making-*"))


def test_a_save_that_the_disk_refuses_leaves_what_was_there(
    states: SavedStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, save_first), (second, _) = rounds(2)
    states.save(first, save_first)

    def full(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        states.save(second, full)
    found = states.newest()
    assert found is not None
    assert found[0].root == first.root
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
def test_a_folder_whose_shared_part_is_damaged_is_passed_over(states: SavedStates, tmp_path: Path, damage: str) -> None:
    made = rounds(2)
    for shared, save_private in made:
        states.save(shared, save_private)
    file = tmp_path / "2" / SHARED_FILE
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-7] if damage == "cut" else b"garbage")
    found = states.newest()
    assert found is not None
    assert found[0].root == made[0][0].root
    assert found[1] == tmp_path / "1" / PRIVATE_FILE


def test_a_folder_without_its_private_part_is_passed_over_while_an_older_one_is_whole(
    states: SavedStates, tmp_path: Path
) -> None:
    made = rounds(2)
    for shared, save_private in made:
        states.save(shared, save_private)
    (tmp_path / "2" / PRIVATE_FILE).unlink()
    found = states.newest()
    assert found is not None
    assert found[0].root == made[0][0].root
    assert accepted_round(found[1]) == 0


def test_a_damaged_private_part_is_refused_by_the_trainer(states: SavedStates) -> None:
    ((shared, save_private),) = rounds(1)
    states.save(shared, save_private)
    found = states.newest()
    assert found is not None
    found[1].write_bytes(found[1].read_bytes()[:-3] + b"???")
    with pytest.raises(PrivateStateError):
        accepted_round(found[1])


def test_what_others_left_in_the_folder_does_no_harm(states: SavedStates, tmp_path: Path) -> None:
    ((shared, save_private),) = rounds(1)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "7").write_text("a file where a folder should be")
    states.save(shared, save_private)
    found = states.newest()
    assert found is not None
    assert found[0].root == shared.root
    assert (tmp_path / "notes.txt").exists()
