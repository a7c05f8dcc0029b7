"""From the frozen set of payloads and the shared state to the next shared state: a pure function in integers.

Every node that runs it on the same bytes gets the same root, whatever the order of the updates, the number of threads
or the processor. Bounds and units: training.fixed_point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.config import TrainingConfig
from training.errors import EmptyRound, InvalidPayload, StateError
from training.fixed_point import (
    MAX_WORKERS,
    MILLI,
    PARAMETER_BITS,
    UPDATE_BITS,
    Int64,
    divide_rounding,
    to_parameters,
)
from training.payload import decompress
from training.state import SharedState

MIN_WORKERS_FOR_CLIPPING = 3
"""From this many usable updates on, none may be larger than the median; with two there is no majority to go by."""
_FACTOR_BITS = 20
_SQUARES_AT_ONCE = 2**20


@dataclass(frozen=True)
class Aggregate:
    """How a round came out."""

    state: SharedState
    included: tuple[bytes, ...]
    """Workers whose update is in the mean, sorted."""
    rejected: tuple[bytes, ...]
    """Workers whose payload is no valid update of their own for this round, sorted."""
    clipped: tuple[bytes, ...]
    """Included workers whose update was scaled down to the median norm, sorted."""


def aggregate(
    config: TrainingConfig, shared: SharedState, round_index: int, updates: Sequence[tuple[bytes, bytes]]
) -> Aggregate:
    """The outer step: mean of the (worker, payload) updates, clipped to the median norm, then outer SGD or Nesterov.

    Raises: EmptyRound without one usable payload; StateOverflow when the result leaves the fixed-point range (the
    model then stays as it is, as in any void round); StateError when state, job and round do not belong together;
    ValueError for a worker that is named twice, too many of them, or an address that is not 20 bytes.
    """
    _check_arguments(config, shared, round_index, updates)
    norms: dict[bytes, int] = {}
    payloads = dict(sorted(updates))
    for worker, payload in payloads.items():
        try:
            update_P = decompress(
                config, payload, worker=worker, base_round=shared.round_index, round_index=round_index
            )
        except InvalidPayload:
            continue
        norms[worker] = norm_of(update_P)
    if not norms:
        raise EmptyRound(f"round {round_index} has no usable update among {len(updates)}")
    limit = _median(list(norms.values())) if len(norms) >= MIN_WORKERS_FOR_CLIPPING else max(norms.values())
    # Decoded a second time, so that memory stays at a few vectors however many workers there are.
    total_P = np.zeros(config.num_parameters, dtype=np.int64)
    for worker, norm in norms.items():
        update_P = decompress(
            config, payloads[worker], worker=worker, base_round=shared.round_index, round_index=round_index
        )
        total_P += _scaled_down(update_P, norm, limit)
    return Aggregate(
        state=outer_step(config, shared, round_index, divide_rounding(total_P, len(norms))),
        included=tuple(norms),
        rejected=tuple(worker for worker in payloads if worker not in norms),
        clipped=tuple(worker for worker, norm in norms.items() if norm > limit),
    )


def outer_step(config: TrainingConfig, shared: SharedState, round_index: int, mean_P: Int64) -> SharedState:
    """theta <- theta - lr x direction; the direction is the mean, or with Nesterov mean + mu m, m <- mu m + mean.

    Args: mean_P, mean of the updates, units of 2^-32. Raises: StateOverflow.
    """
    momentum_P, direction_P = shared.momentum_P, mean_P
    if config.outer_optimizer == "nesterov":
        momentum_P = divide_rounding(momentum_P * config.momentum_milli, MILLI) + mean_P
        direction_P = divide_rounding(momentum_P * config.momentum_milli, MILLI) + mean_P
    unit = MILLI << (UPDATE_BITS - PARAMETER_BITS)
    step_P = divide_rounding(direction_P * config.outer_lr_milli, unit)
    return SharedState(
        config=config,
        round_index=round_index,
        rounds_settled=shared.rounds_settled + 1,
        parameters_P=to_parameters(shared.parameters_P.astype(np.int64) - step_P),
        momentum_P=momentum_P,
    )


def norm_of(update_P: Int64) -> int:
    """Euclidean norm in units of 2^-32, rounded down, exactly: |u| <= 2^39 is split into two halves of 20 bits, so
    that 2^20 products at a time stay below 2^60, and the partial sums are Python integers."""
    high_P, low_P = update_P >> _FACTOR_BITS, update_P & (2**_FACTOR_BITS - 1)
    total = 0
    for start in range(0, len(update_P), _SQUARES_AT_ONCE):
        high, low = high_P[start : start + _SQUARES_AT_ONCE], low_P[start : start + _SQUARES_AT_ONCE]
        total += int(high @ high) << (2 * _FACTOR_BITS)
        total += int(high @ low) << (_FACTOR_BITS + 1)
        total += int(low @ low)
    return math.isqrt(total)


def _check_arguments(
    config: TrainingConfig, shared: SharedState, round_index: int, updates: Sequence[tuple[bytes, bytes]]
) -> None:
    if shared.config.hash != config.hash:
        raise StateError("the shared state belongs to a job with another configuration")
    if not shared.round_index < round_index < 2**31:
        raise StateError(f"round {round_index} cannot follow settled round {shared.round_index}")
    if len({worker for worker, _ in updates}) != len(updates):
        raise ValueError("a worker is named twice in one round")
    if len(updates) > MAX_WORKERS:
        raise ValueError(f"{len(updates)} updates in one round; at most {MAX_WORKERS} can be summed")


def _median(norms: list[int]) -> int:
    """The lower median, so that it is always one of the norms."""
    return sorted(norms)[(len(norms) - 1) // 2]


def _scaled_down(update_P: Int64, norm: int, limit: int) -> Int64:
    if norm <= limit:
        return update_P
    factor = (limit << _FACTOR_BITS) // norm  # below 2^20, so the products stay below 2^59
    return divide_rounding(update_P * factor, 2**_FACTOR_BITS)
