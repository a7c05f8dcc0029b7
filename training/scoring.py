"""What each worker's update is worth: how far its own share of the outer step lowers the held-out loss.

    gain  = loss of the step with no update at all - loss of the step with this update and zeros from everybody else
    score = gain - max(0, median gain of the round) / 3

Both steps are those of `aggregation.outer_step`, in integers, so with M updates this one counts for 1/M of the mean,
just as it does in the round. Applied alone at the full outer rate (2 to 6) an honest update overshoots M times as far
as it ever will, and looks harmful. With Nesterov the step without updates is what the momentum does on its own; for SGD
it is the base state.

The third of the median is what an update has to bring: a random one lowers the loss by a little half of the time, and
far from any optimum even the opposite of an honest one can. The median is the lower one, so that fewer than half of the
workers cannot raise the bar for the others.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from training.aggregation import outer_step
from training.config import TrainingConfig
from training.corpus import Corpus
from training.errors import InvalidPayload, StateOverflow
from training.evaluation import evaluate
from training.fixed_point import Int64, divide_rounding
from training.payload import decompress
from training.state import SharedState

MICRO: Final = 1_000_000
UNUSABLE_SCORE: Final = -1_000 * MICRO
"""A thousand nats worse: no usable update gets near it."""
NEEDED_SHARE: Final = 3
"""An update has to bring one part in so many of the round's median gain."""


def score_updates(
    config: TrainingConfig,
    shared: SharedState,
    corpus: Corpus,
    updates: Sequence[tuple[bytes, bytes]],
    *,
    round_index: int,
    max_windows: int | None = None,
    device: str | torch.device = "cpu",
) -> list[int]:
    """The score of every (worker, payload) of a round, in their order: 10^-6 nats per token of held-out text.

    Below 0, the update does harm, or nothing. A payload that is no update of this worker for this round, or that breaks
    the model, gets UNUSABLE_SCORE. Scores of two machines differ by the last bits of a loss, no more.

    Raises: ValueError for an address that is not 20 bytes.
    """

    def loss_after(mean_P: Int64) -> float:
        state = outer_step(config, shared, round_index, mean_P)
        return evaluate(config, state, corpus, max_windows, device=device)

    without = loss_after(np.zeros(config.num_parameters, dtype=np.int64))
    gains: list[int] = []
    for worker, payload in updates:
        try:
            update_P = decompress(
                config, payload, worker=worker, base_round=shared.round_index, round_index=round_index
            )
            gain = without - loss_after(divide_rounding(update_P, len(updates)))
        except (InvalidPayload, StateOverflow):
            gain = -math.inf
        gains.append(round(gain * MICRO) if abs(gain) * MICRO < -UNUSABLE_SCORE else UNUSABLE_SCORE)
    return _against_median(gains)


def _against_median(gains: list[int]) -> list[int]:
    if not gains:
        return []
    needed = max(0, sorted(gains)[(len(gains) - 1) // 2]) // NEEDED_SHARE
    return [gain if gain == UNUSABLE_SCORE else gain - needed for gain in gains]
