"""The model: what the shared state can carry, tied weights once, causal, genesis equal everywhere."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.helpers import tiny_config, tiny_corpus
from training.batches import windows
from training.errors import ModelNotSupported
from training.model import LanguageModel, build_model, parameter_layout
from training.state import SharedState

CPU = torch.device("cpu")


def test_layout_in_the_configuration_is_the_modules_own() -> None:
    config = tiny_config(num_layers=2)
    assert parameter_layout(LanguageModel(config)) == config.layout
    assert build_model(config, CPU).parameters_P.numel() == config.num_parameters


def test_a_model_with_running_statistics_is_refused_by_name() -> None:
    with pytest.raises(ModelNotSupported, match="running_mean"):
        parameter_layout(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


def test_a_model_with_half_precision_or_frozen_parameters_is_refused() -> None:
    with pytest.raises(ModelNotSupported, match="bfloat16"):
        parameter_layout(nn.Linear(2, 2).to(torch.bfloat16))
    with pytest.raises(ModelNotSupported, match="frozen"):
        parameter_layout(nn.Linear(2, 2).requires_grad_(False))


def test_tied_weights_stand_in_the_layout_once() -> None:
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    assert parameter_layout(nn.Sequential(first, second)) == (("0.weight", (3, 3)),)


def test_output_head_is_the_token_embedding() -> None:
    config = tiny_config()
    model = build_model(config, CPU)
    model.set_parameters(SharedState.genesis(config).float_parameters())
    starts = np.arange(4, dtype=np.int64)
    inputs, targets = windows(tiny_corpus().train, starts, config.block_length)
    model.module(inputs, targets).backward()
    unused = [token for token in range(len(config.alphabet)) if token not in set(inputs.flatten().tolist())]
    rows = model.gradients_P[: len(config.alphabet) * config.width].view(len(config.alphabet), config.width)
    assert unused
    assert bool((rows[unused].abs().sum(dim=1) > 0).all())  # reached through the output alone


def test_a_token_never_sees_what_comes_after_it() -> None:
    config = tiny_config()
    model = build_model(config, CPU)
    model.set_parameters(SharedState.genesis(config).float_parameters())
    inputs, _ = windows(tiny_corpus().train, np.array([5]), config.block_length)
    changed = inputs.clone()
    changed[:, 8:] = 0
    module = model.module
    assert isinstance(module, LanguageModel)
    before, after = module.logits(inputs), module.logits(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


def test_parameters_and_gradients_are_views_of_the_flat_vectors() -> None:
    config = tiny_config()
    model = build_model(config, CPU)
    values_P = np.arange(config.num_parameters, dtype=np.float32)
    model.set_parameters(values_P)
    joined = torch.cat([parameter.detach().flatten() for parameter in model.module.parameters()])
    assert np.array_equal(joined.numpy(), values_P)


def test_genesis_is_equal_in_another_process_with_other_threads() -> None:
    config = tiny_config()
    program = (
        "import sys, torch; torch.set_num_threads(3)\n"
        "from training import SharedState, TrainingConfig\n"
        "print(SharedState.genesis(TrainingConfig.from_manifest(bytes.fromhex(sys.argv[1]))).root.hex())"
    )
    command = [sys.executable, "-c", program, config.to_manifest().hex()]
    other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert other.stdout.strip() == SharedState.genesis(config).root.hex()


def test_genesis_depends_on_the_seed() -> None:
    roots = {SharedState.genesis(tiny_config(seed=seed)).root for seed in range(3)}
    assert len(roots) == 3


def test_genesis_values_lie_in_their_bounds_and_fill_them() -> None:
    config = tiny_config(width=64, num_heads=2)
    values_P = SharedState.genesis(config).float_parameters()
    start = 0
    for name, shape in config.layout:
        part = values_P[start : start + int(np.prod(shape))]
        start += len(part)
        if len(shape) == 1:
            assert (part == 1).all(), name
        elif "embedding" in name:
            assert 0.049 < np.abs(part).max() <= 0.05, name
        else:
            bound = (shape[1] * (2 if name.endswith("_out.weight") else 1)) ** -0.5
            assert 0.98 * bound < np.abs(part).max() <= bound, name
            assert abs(part.mean()) < 0.05 * bound, name
