"""Held-out loss of a shared state."""

import torch

from training.batches import check_corpus, windows
from training.config import TrainingConfig
from training.corpus import Corpus
from training.model import build_model
from training.state import SharedState

_WINDOWS_AT_ONCE = 32


def evaluate(
    config: TrainingConfig,
    shared: SharedState,
    corpus: Corpus,
    max_windows: int | None = None,
    *,
    device: str | torch.device = "cpu",
) -> float:
    """Mean loss over the held-out windows (see `Corpus.held_out_starts`), nats per token.

    `Corpus.bigram_loss(config.block_length, max_windows)` is the yardstick on the same tokens.
    """
    check_corpus(config, corpus)
    target = torch.device(device)
    model = build_model(config, target)
    model.set_parameters(shared.float_parameters())
    model.module.eval()
    starts = corpus.held_out_starts(config.block_length, max_windows)
    total = 0.0
    with torch.inference_mode():
        for first in range(0, len(starts), _WINDOWS_AT_ONCE):
            some = starts[first : first + _WINDOWS_AT_ONCE]
            inputs, targets = windows(corpus.held_out, some, config.block_length)
            total += float(model.module(inputs.to(target), targets.to(target))) * len(some)
    return total / len(starts)
