"""What a worker keeps to itself between rounds, and its file: written whole or not at all, safe to read.

The file is a safetensors file; its metadata holds one entry, the canonical msgpack (in hex) of a `_Header` with the
counters, the worker, the job and a digest of all tensors. There is no data cursor to lose: which text a worker sees
follows from seed, worker, round and step (training.batches).
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from primitives.encoding import EncodingError, decode, encode
from training.config import TrainingConfig
from training.errors import PrivateStateError
from training.fixed_point import Float32

VERSION: Final = 1
_VECTORS: Final = ("exp_avg_P", "exp_avg_sq_P", "residual_P")


@dataclass(frozen=True, eq=False)
class PrivateState:
    """All vectors float32 [P], never changed in place."""

    exp_avg_P: Float32
    exp_avg_sq_P: Float32
    residual_P: Float32
    """What error feedback still owes: updates not sent so far."""
    adam_steps: int
    last_accepted_round: int
    """Index of the last round whose update of this worker was settled; -1 before any."""

    @classmethod
    def fresh(cls, num_parameters: int) -> Self:
        zeros = np.zeros(num_parameters, dtype=np.float32)
        return cls(zeros, zeros, zeros, adam_steps=0, last_accepted_round=-1)


@dataclass(frozen=True, eq=False)
class Pending:
    """A round that was trained and is not decided yet: what was sent, and the private state if it is accepted."""

    round_index: int
    base_round: int
    payload: bytes
    samples: int
    loss_micro: int
    if_accepted: PrivateState


class _PendingHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    round_index: int
    base_round: int
    payload: bytes
    samples: int
    loss_micro: int
    adam_steps: int


class _Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    worker: bytes
    config_hash: bytes
    adam_steps: int
    last_accepted_round: int
    pending: _PendingHeader | None
    digest: bytes
    """SHA-256 over the tensors, names sorted."""


def save_private_state(
    path: Path, config: TrainingConfig, worker: bytes, state: PrivateState, pending: Pending | None
) -> None:
    """Write beside `path`, flush to disk, then rename: after a crash there is the old file or the new one.

    Raises: OSError when the disk refuses; the old file is then untouched.
    """
    tensors = {name: getattr(state, name) for name in _VECTORS}
    if pending is not None:
        tensors |= {f"pending.{name}": getattr(pending.if_accepted, name) for name in _VECTORS}
    header = _Header(
        version=VERSION,
        worker=worker,
        config_hash=config.hash,
        adam_steps=state.adam_steps,
        last_accepted_round=state.last_accepted_round,
        pending=None if pending is None else _pending_header(pending),
        digest=_digest(tensors),
    )
    write_atomically(path, save(tensors, metadata={"outerstep": encode(header).hex()}))


def load_private_state(path: Path, config: TrainingConfig, worker: bytes) -> tuple[PrivateState, Pending | None]:
    """What `save_private_state` wrote for this job and worker.

    Raises: PrivateStateError when the file is damaged, of another version, worker or job, or cannot be read.
    """
    header, tensors = _read(path)
    if header.version != VERSION:
        raise PrivateStateError(f"{path} has version {header.version}; this program reads {VERSION}")
    if header.worker != worker or header.config_hash != config.hash:
        raise PrivateStateError(f"{path} belongs to another worker or another job")
    if header.digest != _digest(tensors):
        raise PrivateStateError(f"{path} is damaged: its digest does not match")
    state = _vectors(path, config, tensors, "", header.adam_steps, header.last_accepted_round)
    if header.pending is None:
        return state, None
    told = header.pending
    after = _vectors(path, config, tensors, "pending.", told.adam_steps, told.round_index)
    return state, Pending(told.round_index, told.base_round, told.payload, told.samples, told.loss_micro, after)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` so that no crash leaves a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _pending_header(pending: Pending) -> _PendingHeader:
    return _PendingHeader(
        round_index=pending.round_index,
        base_round=pending.base_round,
        payload=pending.payload,
        samples=pending.samples,
        loss_micro=pending.loss_micro,
        adam_steps=pending.if_accepted.adam_steps,
    )


def _digest(tensors: dict[str, Float32]) -> bytes:
    hasher = hashlib.sha256()
    for name in sorted(tensors):
        hasher.update(encode([name, len(tensors[name])]))
        hasher.update(np.ascontiguousarray(tensors[name]).data)
    return hasher.digest()


def _read(path: Path) -> tuple[_Header, dict[str, Float32]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        return decode(bytes.fromhex(metadata["outerstep"]), _Header), tensors
    except OSError as error:
        raise PrivateStateError(f"cannot read {path}: {error}") from error
    except (SafetensorError, KeyError, ValueError, EncodingError) as error:
        raise PrivateStateError(f"{path} is no saved worker state: {error}") from error


def _vectors(
    path: Path, config: TrainingConfig, tensors: dict[str, Float32], prefix: str, adam_steps: int, accepted: int
) -> PrivateState:
    vectors = [tensors.get(prefix + name) for name in _VECTORS]
    for vector in vectors:
        if vector is None or vector.dtype != np.float32 or vector.shape != (config.num_parameters,):
            raise PrivateStateError(f"{path} lacks a vector of float32 [{config.num_parameters}]")
        if not np.isfinite(vector).all():
            raise PrivateStateError(f"{path} holds a number that is not finite")
    exp_avg_P, exp_avg_sq_P, residual_P = (vector for vector in vectors if vector is not None)
    return PrivateState(exp_avg_P, exp_avg_sq_P, residual_P, adam_steps=adam_steps, last_accepted_round=accepted)
