"""Scores tell updates that help from those that hurt, at the share that each has in the round."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pytest

from tests.training.helpers import random_update, tiny_config, tiny_corpus
from training.aggregation import aggregate
from training.config import TrainingConfig
from training.evaluation import evaluate
from training.fixed_point import MAX_LOCAL_UPDATE, Float32, updates_to_float
from training.payload import compress, decompress
from training.scoring import MICRO, UNUSABLE_SCORE, score_updates
from training.simulate import simulated_worker
from training.state import SharedState
from training.trainer import Trainer

NUM_WORKERS = 4
LAST = NUM_WORKERS - 1
WINDOWS = 64
OUTER = {
    "demo": {"top_k": 512, "outer_lr_milli": 2_200},
    "high rate": {"top_k": 256, "outer_lr_milli": 4_000},
    "nesterov": {
        "compressor": "int8",
        "outer_optimizer": "nesterov",
        "momentum_milli": 500,
        "outer_lr_milli": 700,
        "feedback_decay_milli": 1000,
        "local_residual_milli": 0,
    },
}


class Binding(TypedDict):
    """What ties a payload to its place."""

    worker: bytes
    base_round: int
    round_index: int


@dataclass
class TrainedRound:
    """A model after three rounds, and the honest payloads of the fourth, that of simulated worker i in place i."""

    config: TrainingConfig
    shared: SharedState
    payloads: list[bytes]
    round_index: int

    def score(self, payloads: list[bytes]) -> list[int]:
        """The scores when worker i has revealed payload i."""
        updates = [(simulated_worker(index), payload) for index, payload in enumerate(payloads)]
        return score_updates(
            self.config, self.shared, tiny_corpus(), updates, round_index=self.round_index, max_windows=WINDOWS
        )

    def update_of(self, index: int) -> Float32:
        """What worker `index` honestly sends."""
        return updates_to_float(decompress(self.config, self.payloads[index], **self.binding(index)))

    def payload_of(self, update_P: Float32, index: int = LAST) -> bytes:
        return compress(self.config, update_P, **self.binding(index))

    def binding(self, index: int) -> Binding:
        return {
            "worker": simulated_worker(index),
            "base_round": self.shared.round_index,
            "round_index": self.round_index,
        }

    def with_last(self, payload: bytes) -> int:
        """The score of this payload of the last worker beside three honest ones."""
        return self.score([*self.payloads[:LAST], payload])[LAST]


@pytest.fixture(scope="module", params=OUTER)
def trained(request: pytest.FixtureRequest) -> TrainedRound:
    config = tiny_config(width=16, inner_steps=30, total_rounds=5, warmup_steps=10, **OUTER[request.param])
    trainers = [Trainer(config, tiny_corpus(), simulated_worker(index)) for index in range(NUM_WORKERS)]
    shared = SharedState.genesis(config)
    for round_index in range(3):
        updates = [trainer.run_round(shared, round_index) for trainer in trainers]
        named = [(trainer.worker, update.payload) for trainer, update in zip(trainers, updates, strict=True)]
        shared = aggregate(config, shared, round_index, named).state
        for trainer, update in zip(trainers, updates, strict=True):
            trainer.accept(update)
    return TrainedRound(config, shared, [trainer.run_round(shared, 3).payload for trainer in trainers], 3)


def test_honest_updates_score_above_zero(trained: TrainedRound) -> None:
    assert all(score > 0 for score in trained.score(trained.payloads))


def test_an_update_with_its_sign_flipped_scores_below_zero(trained: TrainedRound) -> None:
    for index in range(NUM_WORKERS):
        assert trained.with_last(trained.payload_of(-trained.update_of(index))) < 0


@pytest.mark.parametrize("seed", range(4))
def test_a_random_update_of_honest_length_scores_below_zero(trained: TrainedRound, seed: int) -> None:
    honest = trained.update_of(0)
    noise = random_update(trained.config.num_parameters, seed)
    noise *= np.linalg.norm(honest) / np.linalg.norm(noise)
    assert trained.with_last(trained.payload_of(noise)) < 0


def test_an_update_blown_up_a_thousand_times_scores_far_below_zero(trained: TrainedRound) -> None:
    huge = np.clip(1000 * trained.update_of(0), -MAX_LOCAL_UPDATE, MAX_LOCAL_UPDATE)
    assert trained.with_last(trained.payload_of(huge)) < -MICRO


def test_payloads_that_are_no_update_of_this_round_are_unusable(trained: TrainedRound) -> None:
    binding = trained.binding(LAST)
    binding["round_index"] = 9
    other_round = compress(trained.config, trained.update_of(LAST), **binding)
    for payload in (b"", b"garbage", bytes(5000), trained.payloads[LAST][:-1], other_round):
        assert trained.with_last(payload) == UNUSABLE_SCORE


def test_a_copied_payload_is_unusable_and_its_own_worker_keeps_a_good_score(trained: TrainedRound) -> None:
    scores = trained.score([*trained.payloads[:LAST], trained.payloads[0]])
    assert scores[LAST] == UNUSABLE_SCORE
    assert all(score > 0 for score in scores[:LAST])


def test_an_empty_update_scores_below_zero(trained: TrainedRound) -> None:
    """Who sends nothing has not worked."""
    assert trained.with_last(trained.payload_of(np.zeros(trained.config.num_parameters, dtype=np.float32))) < 0


def test_a_minority_of_bad_updates_does_not_change_the_sign_of_honest_ones(trained: TrainedRound) -> None:
    flipped = trained.payload_of(-trained.update_of(0), 0)
    scores = trained.score([flipped, *trained.payloads[1:]])
    assert scores[0] < 0
    assert all(score > 0 for score in scores[1:])


def test_alone_in_its_round_an_update_is_worth_two_thirds_of_what_the_round_gains() -> None:
    config = tiny_config()
    shared = SharedState.genesis(config)
    update = Trainer(config, tiny_corpus(), simulated_worker(0)).run_round(shared, 0)
    settled = aggregate(config, shared, 0, [(simulated_worker(0), update.payload)]).state
    gain = evaluate(config, shared, tiny_corpus(), WINDOWS) - evaluate(config, settled, tiny_corpus(), WINDOWS)
    named = [(simulated_worker(0), update.payload)]
    (score,) = score_updates(config, shared, tiny_corpus(), named, round_index=0, max_windows=WINDOWS)
    assert score == pytest.approx(gain * MICRO * 2 / 3, abs=2)


def test_a_round_without_updates_has_no_scores() -> None:
    config = tiny_config()
    assert score_updates(config, SharedState.genesis(config), tiny_corpus(), [], round_index=0, max_windows=1) == []
