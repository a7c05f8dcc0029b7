"""What a training job is: one frozen structure of integers, whose canonical bytes are the job's manifest on chain.

Floats are left out on purpose: their text and binary forms differ between tools, while an integer with a unit
(`_ppm` = 10^-6, `_milli` = 10^-3) has one encoding and so one hash.
"""

import math
from functools import cached_property
from typing import Final, Literal

import msgspec

from primitives.encoding import EncodingError, decode, encode
from primitives.hashing import tagged_hash
from training.corpus import Corpus
from training.errors import ConfigError

MAX_MANIFEST_BYTES: Final = 8 * 1024
MAX_PARAMETERS: Final = 2**28
CHUNK: Final = 4096
"""Parameters that top-k looks at together."""

_RANGES: Final = {
    "version": (1, 1),
    "seed": (0, 2**63 - 1),
    "num_layers": (1, 128),
    "num_heads": (1, 128),
    "width": (1, 8192),
    "block_length": (1, 8192),
    "batch_size": (1, 65_536),
    "inner_steps": (1, 100_000),
    "total_rounds": (1, 1_000_000),
    "inner_lr_ppm": (1, 10_000_000),
    "final_lr_ppm": (0, 10_000_000),
    "warmup_steps": (0, 10_000_000),
    "adam_beta1_milli": (0, 999),
    "adam_beta2_milli": (0, 999),
    "weight_decay_milli": (0, 10_000),
    "clip_norm_milli": (0, 1_000_000_000),
    "outer_lr_milli": (1, 32_000),
    "momentum_milli": (0, 990),
    "top_k": (1, CHUNK),
    "feedback_decay_milli": (0, 1000),
    "local_residual_milli": (0, 1000),
}
"""Field -> (smallest, largest). The bounds of the outer optimizer are those that fixed_point's proof rests on."""
_CHOICES: Final = {
    "schedule": ("constant", "cosine"),
    "outer_optimizer": ("sgd", "nesterov"),
    "compressor": ("none", "int8", "topk"),
}


class TrainingConfig(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """Model, data order, inner and outer optimizer, compressor. Checked when made; equal configs have equal bytes."""

    version: int = 1
    seed: int = 0
    """Fixes the genesis parameters and, with worker and round, which data is drawn."""
    alphabet: bytes
    """The byte values that occur in the text, ascending; a token is an index into it."""

    num_layers: int = 2
    num_heads: int = 4
    width: int = 64
    block_length: int = 64
    """Tokens that the model sees at once."""

    batch_size: int = 8
    """Windows per inner step."""
    inner_steps: int = 100
    """H: inner steps per round and worker."""
    total_rounds: int = 10
    """Length of the learning-rate schedule, in settled rounds."""
    inner_lr_ppm: int = 4_000
    """Peak learning rate of AdamW, 10^-6."""
    final_lr_ppm: int = 400
    """Learning rate at the end of a cosine schedule, 10^-6; not used by a constant one."""
    warmup_steps: int = 20
    """Inner steps of linear warm-up, counted over the whole job."""
    schedule: Literal["constant", "cosine"] = "cosine"
    adam_beta1_milli: int = 900
    adam_beta2_milli: int = 950
    weight_decay_milli: int = 100
    """Decoupled decay of matrices and embeddings (norm gains are left alone)."""
    clip_norm_milli: int = 1000
    """Largest norm of one inner gradient, thousandths; 0: no clipping."""

    outer_optimizer: Literal["sgd", "nesterov"] = "sgd"
    outer_lr_milli: int = 6_000
    """Learning rate on the 1/M mean of the updates, thousandths."""
    momentum_milli: int = 0
    """Outer Nesterov momentum, thousandths; 0 for sgd."""
    compressor: Literal["none", "int8", "topk"] = "topk"
    top_k: int = 74
    """Elements sent of each chunk of 4096 parameters; used by topk alone."""
    feedback_decay_milli: int = 800
    """How much of the unsent rest is kept from round to round, thousandths."""
    local_residual_milli: int = 500
    """Share of the unsent rest by which a worker shifts its own next start, thousandths."""

    def __post_init__(self) -> None:
        for name, (smallest, largest) in _RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not smallest <= value <= largest:
                raise ConfigError(f"{name} is {value!r}; it should be an integer from {smallest} to {largest}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it should be one of {', '.join(choices)}")
        if type(self.alphabet) is not bytes or list(self.alphabet) != sorted(set(self.alphabet)) or not self.alphabet:
            raise ConfigError("alphabet should be the byte values of the text, ascending, each once")
        if self.width % self.num_heads:
            raise ConfigError(f"width is {self.width}; it should be a multiple of num_heads ({self.num_heads})")
        if (self.momentum_milli > 0) != (self.outer_optimizer == "nesterov"):
            raise ConfigError("momentum_milli should be above 0 for nesterov, and 0 for sgd")
        if self.num_parameters > MAX_PARAMETERS:
            raise ConfigError(f"the model has {self.num_parameters} parameters; at most {MAX_PARAMETERS} are allowed")

    @classmethod
    def demo(cls, corpus: Corpus, rounds: int = 10) -> "TrainingConfig":
        """A small model that learns this text on a busy two-core machine; measured in docs/training.md."""
        # Few rounds need denser updates than the 207x recipe of long runs (k = 74, rate 6): 12.5 % of the elements
        # at a lower rate, which is still 47 times less than fp32.
        return cls(
            alphabet=corpus.alphabet,
            total_rounds=rounds,
            inner_steps=300,
            warmup_steps=60,
            top_k=512,
            outer_lr_milli=2_200,
        )

    @classmethod
    def from_manifest(cls, manifest: bytes) -> "TrainingConfig":
        """The configuration whose manifest this is.

        Raises: ConfigError for every other byte string.
        """
        if len(manifest) > MAX_MANIFEST_BYTES:
            raise ConfigError(f"a manifest has at most {MAX_MANIFEST_BYTES} bytes, this one {len(manifest)}")
        try:
            return decode(manifest, cls)
        except EncodingError as error:
            raise ConfigError(f"not a training manifest: {error}") from error

    def to_manifest(self) -> bytes:
        """Canonical bytes, at most 8 KiB."""
        return encode(self)

    @cached_property
    def hash(self) -> bytes:
        """Tagged hash of the manifest, 32 bytes: what states and payloads are bound to."""
        return tagged_hash("outerstep/training-config/1", self.to_manifest())

    @cached_property
    def layout(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(name, shape) of every parameter in the order of the flat form. The output head is the token embedding."""
        width = self.width
        entries: list[tuple[str, tuple[int, ...]]] = [
            ("token_embedding.weight", (len(self.alphabet), width)),
            ("position_embedding.weight", (self.block_length, width)),
        ]
        for index in range(self.num_layers):
            entries += [
                (f"blocks.{index}.attention_norm.weight", (width,)),
                (f"blocks.{index}.attention_in.weight", (3 * width, width)),
                (f"blocks.{index}.attention_out.weight", (width, width)),
                (f"blocks.{index}.mlp_norm.weight", (width,)),
                (f"blocks.{index}.mlp_in.weight", (4 * width, width)),
                (f"blocks.{index}.mlp_out.weight", (width, 4 * width)),
            ]
        return (*entries, ("final_norm.weight", (width,)))

    @cached_property
    def num_parameters(self) -> int:
        """P: length of the flat form."""
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    def samples_per_round(self) -> int:
        """Windows that one worker trains on in one round."""
        return self.batch_size * self.inner_steps

    def inner_lr(self, step: int) -> float:
        """Learning rate of inner step `step`, counted from 0 over all settled rounds (never over void ones)."""
        peak, final = self.inner_lr_ppm / 1e6, self.final_lr_ppm / 1e6
        if step < self.warmup_steps:
            return peak * (step + 1) / self.warmup_steps
        if self.schedule == "constant":
            return peak
        span = max(1, self.total_rounds * self.inner_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / span)
        return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
