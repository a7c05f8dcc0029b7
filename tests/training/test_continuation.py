"""Stopping, dying, joining late: a worker goes on exactly where the settled rounds and its own file say."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.helpers import WORKER, fresh_trainer, settle, tiny_config
from training.aggregation import aggregate
from training.errors import StateError
from training.state import SharedState


def test_a_stopped_and_restarted_worker_continues_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config(outer_optimizer="nesterov", momentum_milli=500)
    straight, shared = fresh_trainer(config), SharedState.genesis(config)
    for round_index in range(4):
        shared = settle(straight, shared, round_index)
    stopped, again = fresh_trainer(config), SharedState.genesis(config)
    for round_index in range(4):
        again = settle(stopped, again, round_index)
        stopped.save(tmp_path / "worker")
        stopped = fresh_trainer(config)
        stopped.load(tmp_path / "worker")
        again = SharedState.from_bytes(again.to_bytes())
    assert again.root == shared.root
    assert np.array_equal(stopped._state.residual_P, straight._state.residual_P)
    assert stopped._state.adam_steps == straight._state.adam_steps == 4 * config.inner_steps


def test_an_update_waiting_for_its_round_to_settle_survives_a_restart(tmp_path: Path) -> None:
    config = tiny_config()
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    update = trainer.run_round(shared, 0)
    trainer.save(tmp_path / "worker")
    restarted = fresh_trainer(config)
    restarted.load(tmp_path / "worker")
    assert restarted.pending == update
    restarted.accept(update)
    trainer.accept(update)
    shared = aggregate(config, shared, 0, [(WORKER, update.payload)]).state
    assert restarted.run_round(shared, 1) == trainer.run_round(shared, 1)


def test_a_worker_killed_in_mid_round_redoes_the_round_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config()
    path = tmp_path / "worker"
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    shared = settle(trainer, shared, 0)
    trainer.save(path)
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.training.helpers import tiny_corpus\n"
        "from training import SharedState, Trainer\n"
        "shared = SharedState.from_bytes(Path(sys.argv[2]).read_bytes())\n"
        "trainer = Trainer(shared.config, tiny_corpus(), b'w' * 20)\n"
        "trainer.load(Path(sys.argv[1]))\n"
        "trainer.run_round(shared, 1, lambda step, loss: os.kill(os.getpid(), signal.SIGKILL) if step == 1 else None)\n"
    )
    (tmp_path / "state").write_bytes(shared.to_bytes())
    command = [sys.executable, "-c", program, str(path), str(tmp_path / "state")]
    assert subprocess.run(command, check=False, timeout=60, cwd=Path(__file__).parents[2]).returncode == -9
    restarted = fresh_trainer(config)
    restarted.load(path)
    assert restarted.run_round(shared, 1) == trainer.run_round(shared, 1)


def test_a_late_joiner_with_empty_optimizer_state_saves_loads_and_trains_from_the_settled_state(tmp_path: Path) -> None:
    config = tiny_config()
    shared = SharedState.genesis(config)
    for round_index in range(2):
        shared = settle(fresh_trainer(config), shared, round_index)
    joiner = fresh_trainer(config, b"j" * 20)
    joiner.save(tmp_path / "joiner")
    loaded = fresh_trainer(config, b"j" * 20)
    loaded.load(tmp_path / "joiner")
    assert loaded.run_round(shared, 2) == joiner.run_round(shared, 2)


def test_a_shared_state_older_than_the_workers_own_is_refused(tmp_path: Path) -> None:
    config = tiny_config()
    trainer, genesis = fresh_trainer(config), SharedState.genesis(config)
    settle(trainer, genesis, 0)
    with pytest.raises(StateError, match="fetch the newer state"):
        trainer.run_round(genesis, 1)
    with pytest.raises(StateError, match="cannot follow"):
        trainer.run_round(settle(fresh_trainer(config), genesis, 0), 0)
    with pytest.raises(StateError, match="another configuration"):
        trainer.run_round(SharedState.genesis(tiny_config(seed=4)), 1)
