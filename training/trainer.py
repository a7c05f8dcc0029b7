"""One worker's part in a round: H inner steps from the shared state, the pseudo-gradient, and what it keeps to itself.

Sign: the update is start minus end, and the outer step subtracts it. With one worker, H = 1, no compression and outer
SGD of rate 1 a round is exactly one step of plain training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from training.adamw import AdamW, clip_gradients
from training.batches import assigned_starts, check_corpus, windows
from training.config import TrainingConfig
from training.corpus import Corpus
from training.errors import DivergedError, PrivateStateError, StateError
from training.fixed_point import MILLI, Float32, updates_to_float
from training.model import build_model
from training.payload import compress, decompress, fp32_bytes
from training.private_state import Pending, PrivateState, load_private_state, save_private_state
from training.state import SharedState

MICRO: Final = 1_000_000

StepCallback = Callable[[int, float], None]
"""Called after each inner step with (step from 0, loss in nats); what it raises ends the round and changes nothing."""


@dataclass(frozen=True)
class LocalUpdate:
    """What one worker has to offer for one round."""

    round_index: int
    base_round: int
    """The settled round whose state it starts from; -1: genesis."""
    payload: bytes
    samples: int
    """Windows trained on."""
    loss_micro: int
    """Mean training loss over the round's inner steps, 10^-6 nats per token."""
    fp32_bytes: int
    """What the update would cost uncompressed."""

    @property
    def payload_bytes(self) -> int:
        return len(self.payload)


class Trainer:
    """Trains rounds for one worker. Its private state moves on only by `accept`."""

    def __init__(
        self,
        config: TrainingConfig,
        corpus: Corpus,
        worker: bytes,
        device: str | torch.device = "cpu",
        *,
        bf16: bool = False,
    ) -> None:
        """`worker`: its address, 20 bytes, which stands in every payload. `bf16`: run forward and backward in bfloat16
        where that is safe; parameters and updates stay float32.

        Raises: CorpusError when the text is not the configuration's; ModelNotSupported (never for our own model).
        """
        check_corpus(config, corpus)
        self.config = config
        self.worker = worker
        self.device = torch.device(device)
        self._corpus = corpus
        self._bf16 = bf16
        self._model = build_model(config, self.device)
        self._state = PrivateState.fresh(config.num_parameters)
        self._pending: Pending | None = None

    @property
    def last_accepted_round(self) -> int:
        """Index of the last round that was settled with this worker's update; -1 before any."""
        return self._state.last_accepted_round

    @property
    def pending(self) -> LocalUpdate | None:
        """The update that was made and is neither accepted nor discarded; survives `save` and `load`."""
        return None if self._pending is None else self._as_update(self._pending)

    def run_round(self, shared: SharedState, round_index: int, on_step: StepCallback | None = None) -> LocalUpdate:
        """Train H steps and encode the update. Commits nothing: a second call simply replaces the first one's result.

        Raises: StateError when the shared state is of another job, not older than the round, or older than what this
        worker has already built on; DivergedError when loss or update are not finite.
        """
        self._check_base(shared, round_index)
        self._pending = None
        theta_P = shared.float_parameters()
        start_P = theta_P - self._state.residual_P * np.float32(self.config.local_residual_milli / MILLI)
        end_P, optimizer, mean_loss = self._inner_steps(start_P, shared.rounds_settled, round_index, on_step)
        owed_P = self._state.residual_P * np.float32(self.config.feedback_decay_milli / MILLI)
        owed_P += start_P - end_P
        base = shared.round_index
        payload = compress(self.config, owed_P, worker=self.worker, base_round=base, round_index=round_index)
        decoded_P = decompress(self.config, payload, worker=self.worker, base_round=base, round_index=round_index)
        after = PrivateState(
            exp_avg_P=_to_numpy(optimizer.exp_avg_P),
            exp_avg_sq_P=_to_numpy(optimizer.exp_avg_sq_P),
            residual_P=np.subtract(owed_P, updates_to_float(decoded_P), dtype=np.float32),
            adam_steps=optimizer.num_steps,
            last_accepted_round=round_index,
        )
        loss_micro = round(mean_loss * MICRO)
        self._pending = Pending(round_index, base, payload, self.config.samples_per_round, loss_micro, after)
        return self._as_update(self._pending)

    def accept(self, update: LocalUpdate) -> None:
        """The round was settled with this update: error feedback and inner optimizer move on.

        Raises: PrivateStateError when it is not the pending update.
        """
        if self._pending is None or self._as_update(self._pending) != update:
            raise PrivateStateError(f"round {update.round_index}: only the update made last can be accepted")
        self._state = self._pending.if_accepted
        self._pending = None

    def discard(self) -> None:
        """The round was settled without the pending update, or not at all: as if it had not been trained."""
        self._pending = None

    def save(self, path: Path) -> None:
        """Write the private state, pending update included, whole or not at all. Raises: OSError."""
        save_private_state(path, self.config, self.worker, self._state, self._pending)

    def load(self, path: Path) -> None:
        """Take up what `save` wrote. Raises: PrivateStateError, and then nothing has changed."""
        self._state, self._pending = load_private_state(path, self.config, self.worker)

    def _check_base(self, shared: SharedState, round_index: int) -> None:
        if shared.config.hash != self.config.hash:
            raise StateError("the shared state belongs to a job with another configuration")
        if not shared.round_index < round_index < 2**31:
            raise StateError(f"round {round_index} cannot follow settled round {shared.round_index}")
        if shared.round_index < self._state.last_accepted_round:
            raise StateError(
                f"the shared state is of round {shared.round_index}, but this worker's update of round "
                f"{self._state.last_accepted_round} is settled: fetch the newer state"
            )

    def _inner_steps(
        self, start_P: Float32, rounds_settled: int, round_index: int, on_step: StepCallback | None
    ) -> tuple[Float32, AdamW, float]:
        """(parameters at the end, optimizer at the end, mean loss); the private state is only read."""
        config, model = self.config, self._model
        model.set_parameters(start_P)
        optimizer = AdamW(
            self._to_device(self._state.exp_avg_P), self._to_device(self._state.exp_avg_sq_P), self._state.adam_steps
        )
        total = 0.0
        for step in range(config.inner_steps):
            loss = self._backward(round_index, step)
            clip_gradients(model.gradients_P, config.clip_norm_milli / MILLI)
            lr = config.inner_lr(rounds_settled * config.inner_steps + step)
            optimizer.step(config, model.parameters_P, model.gradients_P, model.decayed_P, lr)
            total += loss
            if on_step is not None:
                on_step(step, loss)
        return _to_numpy(model.parameters_P), optimizer, total / config.inner_steps

    def _backward(self, round_index: int, step: int) -> float:
        """Loss of one batch, its gradient left in the model's flat gradient vector."""
        starts = assigned_starts(self.config, self._corpus, self.worker, round_index, step)
        inputs, targets = windows(self._corpus.train, starts, self.config.block_length)
        self._model.gradients_P.zero_()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._bf16):
            loss = self._model.module(inputs.to(self.device), targets.to(self.device))
        loss.backward()
        value = float(loss.detach())
        if not np.isfinite(value):
            raise DivergedError(f"the loss is {value} at inner step {step} of round {round_index}")
        return value

    def _to_device(self, values_P: Float32) -> torch.Tensor:
        return torch.from_numpy(values_P.copy()).to(self.device)

    def _as_update(self, pending: Pending) -> LocalUpdate:
        return LocalUpdate(
            round_index=pending.round_index,
            base_round=pending.base_round,
            payload=pending.payload,
            samples=pending.samples,
            loss_micro=pending.loss_micro,
            fp32_bytes=fp32_bytes(self.config),
        )


def _to_numpy(values_P: torch.Tensor) -> Float32:
    """A copy in main memory."""
    copied: Float32 = values_P.detach().to("cpu", copy=True).numpy()
    return copied
