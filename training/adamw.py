"""AdamW over one flat vector: the inner optimizer, with all its state in three fields (arXiv 1711.05101)."""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from training.config import TrainingConfig

EPSILON: Final = 1e-8


@dataclass
class AdamW:
    """First and second moments, float32 [P], and how many steps they have seen."""

    exp_avg_P: Tensor
    exp_avg_sq_P: Tensor
    num_steps: int

    def step(
        self, config: TrainingConfig, parameters_P: Tensor, gradients_P: Tensor, decayed_P: Tensor, lr: float
    ) -> None:
        """Change `parameters_P` in place; decoupled weight decay where `decayed_P` is 1."""
        beta1, beta2 = config.adam_beta1_milli / 1000, config.adam_beta2_milli / 1000
        self.num_steps += 1
        self.exp_avg_P.lerp_(gradients_P, 1 - beta1)
        self.exp_avg_sq_P.mul_(beta2).addcmul_(gradients_P, gradients_P, value=1 - beta2)
        parameters_P.addcmul_(parameters_P, decayed_P, value=-lr * config.weight_decay_milli / 1000)
        denominator_P = self.exp_avg_sq_P.sqrt().div_(math.sqrt(1 - beta2**self.num_steps)).add_(EPSILON)
        parameters_P.addcdiv_(self.exp_avg_P, denominator_P, value=-lr / (1 - beta1**self.num_steps))


def clip_gradients(gradients_P: Tensor, largest_norm: float) -> None:
    """Scale in place so that the norm is at most `largest_norm`; 0 leaves them alone."""
    if largest_norm > 0:
        norm = torch.linalg.vector_norm(gradients_P)
        gradients_P.mul_(torch.clamp(largest_norm / (norm + 1e-6), max=1.0))
