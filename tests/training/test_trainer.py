"""A worker's round: sign, error feedback, what is committed when, and exact continuation after a stop."""

import dataclasses
import os

import numpy as np
import pytest
import torch

from tests.training.helpers import WORKER, fresh_trainer, settle, tiny_config, tiny_corpus
from training.adamw import AdamW
from training.aggregation import aggregate
from training.batches import assigned_starts, windows
from training.config import TrainingConfig
from training.corpus import Corpus
from training.errors import CorpusError, DivergedError, PrivateStateError
from training.model import build_model
from training.payload import decompress
from training.state import SharedState
from training.trainer import Trainer

PLAIN = {
    "compressor": "none",
    "outer_lr_milli": 1000,
    "inner_steps": 1,
    "feedback_decay_milli": 0,
    "local_residual_milli": 0,
}


def plain_training(config: TrainingConfig, num_steps: int) -> torch.Tensor:
    """The same model and data with torch's own AdamW and no rounds at all; float32 [P]."""
    model = build_model(config, torch.device("cpu"))
    model.set_parameters(SharedState.genesis(config).float_parameters())
    parameters = list(model.module.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay_milli / 1000},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    betas = (config.adam_beta1_milli / 1000, config.adam_beta2_milli / 1000)
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=betas, eps=1e-8)
    for step in range(num_steps):
        for group in optimizer.param_groups:
            group["lr"] = config.inner_lr(step)
        round_index, inner_step = divmod(step, config.inner_steps)
        starts = assigned_starts(config, tiny_corpus(), WORKER, round_index, inner_step)
        optimizer.zero_grad(set_to_none=False)
        model.module(*windows(tiny_corpus().train, starts, config.block_length)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm_milli / 1000)
        optimizer.step()
    return model.parameters_P


def test_one_worker_with_h_one_and_outer_sgd_of_rate_one_is_plain_training() -> None:
    config = tiny_config(**PLAIN)
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    for round_index in range(6):
        shared = settle(trainer, shared, round_index)
    assert np.abs(shared.float_parameters() - plain_training(config, 6).numpy()).max() < 2e-6


def test_one_worker_with_several_inner_steps_is_plain_training_too() -> None:
    config = tiny_config(**{**PLAIN, "inner_steps": 3})
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    for round_index in range(2):
        shared = settle(trainer, shared, round_index)
    assert np.abs(shared.float_parameters() - plain_training(config, 6).numpy()).max() < 2e-6


def test_a_round_lowers_the_loss_in_the_direction_of_the_step() -> None:
    config = tiny_config(compressor="int8", outer_lr_milli=1000, inner_steps=20)
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    first = trainer.run_round(shared, 0)
    trainer.accept(first)
    shared = aggregate(config, shared, 0, [(WORKER, first.payload)]).state
    assert trainer.run_round(shared, 1).loss_micro < first.loss_micro - 100_000


def test_a_second_run_of_the_same_round_gives_the_same_update() -> None:
    config = tiny_config()
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    first = trainer.run_round(shared, 0)
    assert trainer.run_round(shared, 0) == first
    assert fresh_trainer(config).run_round(shared, 0) == first


def test_two_workers_train_on_different_windows_and_a_retried_round_on_fresh_ones() -> None:
    config, corpus = tiny_config(), tiny_corpus()
    draws = [
        assigned_starts(config, corpus, worker, round_index, step).tolist()
        for worker in (WORKER, b"v" * 20)
        for round_index in (0, 1)
        for step in (0, 1)
    ]
    assert len({tuple(draw) for draw in draws}) == len(draws)
    assert all(0 <= start < len(corpus.train) - config.block_length for draw in draws for start in draw)


def test_golden_windows_of_one_step() -> None:
    assert assigned_starts(tiny_config(), tiny_corpus(), WORKER, 3, 2).tolist() == [876, 10914, 11239, 23530]


def test_update_reports_real_sizes_and_samples() -> None:
    config = tiny_config()
    update = fresh_trainer(config).run_round(SharedState.genesis(config), 0)
    assert update.payload_bytes == len(update.payload)
    assert update.fp32_bytes == 4 * config.num_parameters
    assert update.samples == config.batch_size * config.inner_steps
    assert (update.round_index, update.base_round) == (0, -1)
    assert 0 < update.loss_micro < 10_000_000


def test_error_feedback_owes_exactly_what_was_not_sent() -> None:
    """With decay 1 and no shift: all that was sent, plus what is still owed, is all that was trained."""
    config = tiny_config(feedback_decay_milli=1000, local_residual_milli=0, top_k=64)
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    trained_P = np.zeros(config.num_parameters)
    sent_P = np.zeros(config.num_parameters)
    for round_index in range(3):
        start_P = shared.float_parameters()
        update = trainer.run_round(shared, round_index)
        trained_P += start_P - trainer._model.parameters_P.numpy()
        base = shared.round_index
        sent_P += decompress(config, update.payload, worker=WORKER, base_round=base, round_index=round_index) * 2.0**-32
        trainer.accept(update)
        shared = aggregate(config, shared, round_index, [(WORKER, update.payload)]).state
    assert np.abs(trained_P - sent_P - trainer._state.residual_P).max() < 1e-5
    assert np.abs(trainer._state.residual_P).max() > 1e-3


def test_a_discarded_round_leaves_the_private_state_as_it_was() -> None:
    config = tiny_config()
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    first = trainer.run_round(shared, 0)
    trainer.discard()
    assert trainer.pending is None
    assert trainer.last_accepted_round == -1
    assert trainer.run_round(shared, 0) == first
    with pytest.raises(PrivateStateError):
        fresh_trainer(config).accept(first)


def test_only_the_update_made_last_can_be_accepted() -> None:
    config = tiny_config()
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    first = trainer.run_round(shared, 0)
    second = trainer.run_round(shared, 1)
    with pytest.raises(PrivateStateError, match="made last"):
        trainer.accept(first)
    trainer.accept(second)
    assert trainer.last_accepted_round == 1
    with pytest.raises(PrivateStateError):
        trainer.accept(second)


def test_a_callback_that_raises_ends_the_round_and_changes_nothing() -> None:
    class Stop(Exception):
        pass

    def stop_at_second_step(step: int, loss: float) -> None:
        assert loss > 0
        if step == 1:
            raise Stop

    config = tiny_config()
    trainer, shared = fresh_trainer(config), SharedState.genesis(config)
    with pytest.raises(Stop):
        trainer.run_round(shared, 0, stop_at_second_step)
    assert trainer.pending is None
    assert trainer.run_round(shared, 0) == fresh_trainer(config).run_round(shared, 0)


def test_learning_rate_follows_settled_rounds_also_when_rounds_were_void(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    shared = settle(fresh_trainer(config), SharedState.genesis(config), 7)
    rates: list[float] = []
    monkeypatch.setattr(AdamW, "step", lambda self, *arguments: rates.append(arguments[-1]))
    fresh_trainer(config, b"j" * 20).run_round(shared, 9)
    assert shared.rounds_settled == 1
    assert rates == [config.inner_lr(step) for step in (3, 4, 5)]


def test_another_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="another text"):
        Trainer(tiny_config(), Corpus(b"0123456789" * 3000), WORKER)


def test_training_that_diverges_is_a_clear_error_and_leaves_nothing_pending() -> None:
    config = tiny_config(
        inner_lr_ppm=10_000_000, clip_norm_milli=0, warmup_steps=0, schedule="constant", inner_steps=50
    )
    trainer = fresh_trainer(config)
    with pytest.raises(DivergedError, match="diverged"):
        trainer.run_round(SharedState.genesis(config), 0)
    assert trainer.pending is None


def test_a_loss_that_is_not_finite_is_named_with_its_step() -> None:
    config = tiny_config()
    trainer = fresh_trainer(config)
    huge_P = np.full(config.num_parameters, 3e38, dtype=np.float32)
    trainer._state = dataclasses.replace(trainer._state, residual_P=huge_P)
    with pytest.raises(DivergedError, match="loss is nan at inner step 0 of round 0"):
        trainer.run_round(SharedState.genesis(config), 0)


def test_bf16_changes_the_arithmetic_but_keeps_float32_masters() -> None:
    config = tiny_config(compressor="none", inner_steps=5)
    genesis = SharedState.genesis(config)
    exact = Trainer(config, tiny_corpus(), WORKER).run_round(genesis, 0)
    half = Trainer(config, tiny_corpus(), WORKER, bf16=True)
    rounded = half.run_round(genesis, 0)
    assert rounded.payload != exact.payload
    assert half._model.parameters_P.dtype == torch.float32
    assert abs(rounded.loss_micro - exact.loss_micro) < 50_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_trains_the_same_round_within_rounding() -> None:
    config = tiny_config(compressor="none", inner_steps=5)
    genesis = SharedState.genesis(config)
    cpu = Trainer(config, tiny_corpus(), WORKER).run_round(genesis, 0)
    cuda = Trainer(config, tiny_corpus(), WORKER, "cuda").run_round(genesis, 0)
    assert abs(cpu.loss_micro - cuda.loss_micro) < 10_000


def test_the_working_directory_is_left_alone() -> None:
    before = sorted(os.listdir())
    fresh_trainer(tiny_config()).run_round(SharedState.genesis(tiny_config()), 0)
    assert sorted(os.listdir()) == before
