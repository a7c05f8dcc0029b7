"""One round's training in a thread of its own, so that the worker keeps watching the chain."""

import asyncio
import threading
from collections.abc import Callable

from training import LocalUpdate, SharedState, Trainer

OnStep = Callable[[int, float], None]
"""Called in the training thread with (step from 0, loss in nats)."""


class Abandoned(Exception):
    """The round is not worth finishing: it closed, or the worker stops."""


class TrainingTask:
    """Training of one round under way. The trainer must not be touched until `task` is done."""

    def __init__(self, trainer: Trainer, shared: SharedState, round_index: int, on_step: OnStep) -> None:
        self.round_index = round_index
        self._abandon = threading.Event()
        self._on_step = on_step
        self.task: asyncio.Task[LocalUpdate] = asyncio.create_task(
            asyncio.to_thread(trainer.run_round, shared, round_index, self._after_step)
        )

    def _after_step(self, step: int, loss: float) -> None:
        if self._abandon.is_set():
            raise Abandoned
        self._on_step(step, loss)

    async def abandon(self) -> None:
        """End the training after its current inner step; returns once the thread has let go of the trainer."""
        self._abandon.set()
        await asyncio.wait({self.task})
        if not self.task.cancelled():
            self.task.exception()
