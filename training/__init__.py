"""Low-communication training as a library: no chain, no sockets.

Names resolve on first use, so that importing this package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.aggregation import Aggregate, aggregate
    from training.config import TrainingConfig
    from training.corpus import Corpus, standard_library_text
    from training.evaluation import evaluate
    from training.scoring import score_updates
    from training.state import SharedState
    from training.trainer import LocalUpdate, Trainer

_HOMES = {
    "Aggregate": "training.aggregation",
    "Corpus": "training.corpus",
    "LocalUpdate": "training.trainer",
    "SharedState": "training.state",
    "Trainer": "training.trainer",
    "TrainingConfig": "training.config",
    "aggregate": "training.aggregation",
    "evaluate": "training.evaluation",
    "score_updates": "training.scoring",
    "standard_library_text": "training.corpus",
}

__all__ = [
    "Aggregate",
    "Corpus",
    "LocalUpdate",
    "SharedState",
    "Trainer",
    "TrainingConfig",
    "aggregate",
    "evaluate",
    "score_updates",
    "standard_library_text",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'training' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
