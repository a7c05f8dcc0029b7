"""The two calls of a DA client: `disperse` a blob, `retrieve` it."""

from da_layer.disperse import disperse
from da_layer.retrieve import retrieve

__all__ = ["disperse", "retrieve"]
