"""Which text a worker trains on: a pure function of seed, worker, round and step.

No cursor exists that could be lost, repeated or shared by mistake: a worker killed in mid-round draws the same windows
again, a round tried anew under another index draws fresh ones, and anyone can recompute what a worker was assigned.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config import TrainingConfig
from training.corpus import Corpus
from training.errors import CorpusError
from training.initialisation import philox


def assigned_starts(
    config: TrainingConfig, corpus: Corpus, worker: bytes, round_index: int, step: int
) -> NDArray[np.int64]:
    """Where the windows of one inner step start in the training text, int64 [batch]."""
    num_places = len(corpus.train) - config.block_length
    words = philox("training-batch", config.seed, worker, round_index, step).random_raw(config.batch_size)
    return (words % np.uint64(num_places)).astype(np.int64)


def windows(tokens: NDArray[np.uint8], starts: NDArray[np.int64], block_length: int) -> tuple[Tensor, Tensor]:
    """(inputs, targets), each int64 [B, T]; targets are the inputs one token later."""
    both = torch.from_numpy(tokens[starts[:, None] + np.arange(block_length + 1)].astype(np.int64))
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def check_corpus(config: TrainingConfig, corpus: Corpus) -> None:
    """Raises: CorpusError when this is not a text for this configuration."""
    if corpus.alphabet != config.alphabet:
        raise CorpusError("the text's alphabet is not the one in the job's configuration: it is another text")
    if len(corpus.train) <= config.block_length:
        raise CorpusError(f"the text is shorter than one window of {config.block_length} tokens")
