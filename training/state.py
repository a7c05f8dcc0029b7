"""The shared state: what every worker holds in common after a settled round, and its root and file form.

The file is a safetensors file with one byte form: header keys sorted, padded with spaces to 8 bytes, momentum (I64)
before parameters (I32), each parameter under its own name and shape. It carries the job's manifest, so a checkpoint
explains itself; any safetensors library reads it (float value = integer x 2^-24, momentum x 2^-32).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np

from primitives.encoding import encode
from primitives.hashing import tagged_hash
from primitives.merkle import leaf_hash, merkle_root
from training.config import MAX_MANIFEST_BYTES, TrainingConfig
from training.errors import StateError
from training.fixed_point import MAX_MOMENTUM, MAX_PARAMETER, Float32, Int32, Int64, parameters_to_float
from training.initialisation import genesis_parameters

STATE_VERSION: Final = 1
LEAF_BYTES: Final = 16 * 1024
GENESIS_ROUND: Final = -1
MAX_HEADER_BYTES: Final = 1024 * 1024
_FORMAT: Final = "outerstep-state/1"


@dataclass(frozen=True, eq=False)
class SharedState:
    """Parameters int32 [P] in 2^-24, momentum int64 [P] in 2^-32 (empty for outer SGD), and where the job stands."""

    config: TrainingConfig
    round_index: int
    """Index of the last settled round; -1 before any."""
    rounds_settled: int
    """How many rounds are in it; drives the learning-rate schedule."""
    parameters_P: Int32
    momentum_P: Int64

    def __post_init__(self) -> None:
        num_parameters = self.config.num_parameters
        wanted_momentum = num_parameters if self.config.outer_optimizer == "nesterov" else 0
        if self.parameters_P.shape != (num_parameters,) or self.parameters_P.dtype != np.int32:
            raise StateError(f"parameters should be int32 [{num_parameters}]")
        if self.momentum_P.shape != (wanted_momentum,) or self.momentum_P.dtype != np.int64:
            raise StateError(f"momentum should be int64 [{wanted_momentum}]")
        if not 0 <= self.rounds_settled <= self.round_index + 1 < 2**31 or (
            self.rounds_settled == 0 and self.round_index != GENESIS_ROUND
        ):
            raise StateError(f"{self.rounds_settled} rounds cannot have settled by round {self.round_index}")
        if int(self.parameters_P.min()) < -MAX_PARAMETER:
            raise StateError("a parameter is -2^31, which is outside the symmetric range of the state")
        if self.momentum_P.size and int(np.abs(self.momentum_P).max()) > MAX_MOMENTUM:
            raise StateError("the outer momentum is larger than aggregation can make it")
        self.parameters_P.flags.writeable = False
        self.momentum_P.flags.writeable = False

    @classmethod
    def genesis(cls, config: TrainingConfig) -> Self:
        """The state before the first round: a pure function of the configuration."""
        num_momentum = config.num_parameters if config.outer_optimizer == "nesterov" else 0
        return cls(config, GENESIS_ROUND, 0, genesis_parameters(config), np.zeros(num_momentum, dtype=np.int64))

    @cached_property
    def root(self) -> bytes:
        """32 bytes binding every field: counters, and Merkle roots over 16 KiB leaves of little-endian vectors."""
        body = [
            STATE_VERSION,
            self.config.hash,
            self.round_index,
            self.rounds_settled,
            len(self.parameters_P),
            _vector_root(self.parameters_P.astype("<i4", copy=False)),
            len(self.momentum_P),
            _vector_root(self.momentum_P.astype("<i8", copy=False)),
        ]
        return tagged_hash("outerstep/training-state/1", encode(body))

    def float_parameters(self) -> Float32:
        """float32 [P] for a device; the same bits on every machine."""
        return parameters_to_float(self.parameters_P)

    def to_bytes(self) -> bytes:
        """The safetensors file; same state, same bytes."""
        header = json.dumps(self._header(), sort_keys=True, separators=(",", ":")).encode("ascii")
        header += b" " * (-len(header) % 8)
        momentum = self.momentum_P.astype("<i8", copy=False).tobytes()
        return len(header).to_bytes(8, "little") + header + momentum + self.parameters_P.astype("<i4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state of such a file; whoever fetched it compares `.root` with the chain's.

        Raises: StateError for every byte string that `to_bytes` would not have written.
        """
        metadata, body = _split_file(data)
        try:
            config = TrainingConfig.from_manifest(bytes.fromhex(metadata["manifest"]))
            round_index, rounds_settled = int(metadata["round_index"]), int(metadata["rounds_settled"])
        except (KeyError, ValueError) as error:
            raise StateError(f"the state file's metadata is wrong: {error}") from error
        num_momentum = config.num_parameters if config.outer_optimizer == "nesterov" else 0
        if len(body) != 8 * num_momentum + 4 * config.num_parameters:
            raise StateError(f"the state file holds {len(body)} bytes of tensors, which is not what its manifest says")
        momentum_P = np.frombuffer(body, dtype="<i8", count=num_momentum).astype(np.int64)
        parameters_P = np.frombuffer(body, dtype="<i4", offset=8 * num_momentum).astype(np.int32)
        state = cls(config, round_index, rounds_settled, parameters_P, momentum_P)
        if state.to_bytes() != data:
            raise StateError("the state file is not in its one byte form, or its root is not that of its content")
        return state

    def _header(self) -> dict[str, object]:
        metadata = {
            "format": _FORMAT,
            "manifest": self.config.to_manifest().hex(),
            "root": self.root.hex(),
            "round_index": str(self.round_index),
            "rounds_settled": str(self.rounds_settled),
        }
        header: dict[str, object] = {"__metadata__": metadata}
        offset = 0
        if len(self.momentum_P):
            offset = 8 * len(self.momentum_P)
            header["momentum"] = {"dtype": "I64", "shape": [len(self.momentum_P)], "data_offsets": [0, offset]}
        for name, shape in self.config.layout:
            end = offset + 4 * int(np.prod(shape))
            header[f"parameters.{name}"] = {"dtype": "I32", "shape": list(shape), "data_offsets": [offset, end]}
            offset = end
        return header


def _vector_root(vector: Int32 | Int64) -> bytes:
    return merkle_root([leaf_hash(leaf) for leaf in _leaves(memoryview(vector.tobytes()))])


def _leaves(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), LEAF_BYTES):
        yield data[start : start + LEAF_BYTES]


def _split_file(data: bytes) -> tuple[dict[str, str], memoryview]:
    """The metadata (all text) and the tensors' bytes; sizes are checked before anything is parsed."""
    header_bytes = int.from_bytes(data[:8], "little")
    if len(data) < 8 or header_bytes > min(MAX_HEADER_BYTES, len(data) - 8):
        raise StateError("the state file is cut short, or no safetensors file")
    try:
        header = json.loads(data[8 : 8 + header_bytes])
    except (ValueError, RecursionError) as error:
        raise StateError("the state file's header is not JSON") from error
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise StateError(f"the state file is not of format {_FORMAT}")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise StateError("the state file's metadata should be text")
    if len(metadata.get("manifest", "")) > 2 * MAX_MANIFEST_BYTES:
        raise StateError("the state file's manifest is too long")
    return metadata, memoryview(data)[8 + header_bytes :]
