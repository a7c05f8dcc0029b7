"""The worker's own file: whole or absent, refused when damaged or another's, no code in it."""

from pathlib import Path

import numpy as np
import pytest

from tests.training.helpers import WORKER, tiny_config, tiny_corpus
from training.errors import PrivateStateError
from training.private_state import write_atomically
from training.state import SharedState
from training.trainer import Trainer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    config = tiny_config()
    trainer = Trainer(config, tiny_corpus(), WORKER)
    trainer.accept(trainer.run_round(SharedState.genesis(config), 0))
    trainer.save(tmp_path / "worker")
    return tmp_path / "worker"


def test_saving_leaves_one_file_and_replaces_the_old_one_whole(saved: Path) -> None:
    trainer = Trainer(tiny_config(), tiny_corpus(), WORKER)
    trainer.save(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["worker"]
    trainer.load(saved)
    assert trainer.last_accepted_round == -1


def test_a_failed_write_keeps_the_old_file_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_every_kind_of_damage_is_refused_and_changes_nothing(saved: Path) -> None:
    data = saved.read_bytes()
    trainer = Trainer(tiny_config(), tiny_corpus(), WORKER)
    candidates = [b"", b"\x80\x04N.", data[:100], data[:-1], data + b"\x00"]
    for position in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        candidates.append(bytes(damaged))
    for candidate in candidates:
        saved.write_bytes(candidate)
        with pytest.raises(PrivateStateError):
            trainer.load(saved)
        assert trainer.last_accepted_round == -1
        assert not trainer._state.residual_P.any()


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PrivateStateError, match="cannot read"):
        Trainer(tiny_config(), tiny_corpus(), WORKER).load(tmp_path / "none")


def test_the_state_of_another_worker_or_job_is_refused(saved: Path) -> None:
    with pytest.raises(PrivateStateError, match="another worker"):
        Trainer(tiny_config(), tiny_corpus(), b"x" * 20).load(saved)
    with pytest.raises(PrivateStateError, match="another job"):
        Trainer(tiny_config(seed=5), tiny_corpus(), WORKER).load(saved)


def test_moments_residual_and_step_counter_are_all_in_the_file(saved: Path) -> None:
    trainer = Trainer(tiny_config(), tiny_corpus(), WORKER)
    trainer.load(saved)
    state = trainer._state
    assert state.adam_steps == tiny_config().inner_steps
    assert state.last_accepted_round == 0
    for vector in (state.exp_avg_P, state.exp_avg_sq_P, state.residual_P):
        assert np.abs(vector).max() > 0
