"""Whole jobs in one process: the loss goes down, workers agree, evaluation and the command line tell the truth."""

import math
from pathlib import Path

import pytest

from tests.training.helpers import random_payload, tiny_config, tiny_corpus
from training.config import TrainingConfig
from training.errors import CorpusError
from training.evaluation import evaluate
from training.payload import fp32_bytes
from training.simulate import main, simulate
from training.state import SharedState

WIDE = {"width": 16, "inner_steps": 30, "total_rounds": 5, "warmup_steps": 10}


@pytest.mark.parametrize(
    ("changes", "num_workers"),
    [
        ({"compressor": "topk", "top_k": 512, "outer_lr_milli": 2_000}, 3),
        (
            {
                "compressor": "int8",
                "outer_optimizer": "nesterov",
                "momentum_milli": 500,
                "outer_lr_milli": 700,
                "feedback_decay_milli": 1000,
                "local_residual_milli": 0,
            },
            2,
        ),
        ({"compressor": "none", "outer_lr_milli": 1_000}, 1),
    ],
)
def test_held_out_loss_goes_down(changes: dict[str, object], num_workers: int) -> None:
    config = tiny_config(**WIDE, **changes)
    before = evaluate(config, SharedState.genesis(config), tiny_corpus())
    shared, reports = simulate(config, tiny_corpus(), num_workers)
    assert before == pytest.approx(math.log(len(config.alphabet)), abs=0.2)
    assert reports[-1].held_out_loss < before - 0.3
    assert shared.rounds_settled == 5


def test_a_simulation_is_repeatable() -> None:
    config = tiny_config()
    roots = {simulate(config, tiny_corpus(), 2)[0].root for _ in range(2)}
    assert len(roots) == 1


def test_evaluation_of_some_windows_lies_near_that_of_all() -> None:
    config = tiny_config()
    genesis = SharedState.genesis(config)
    every = evaluate(config, genesis, tiny_corpus())
    assert evaluate(config, genesis, tiny_corpus(), 20) == pytest.approx(every, abs=0.1)
    assert evaluate(config, genesis, tiny_corpus(), 10**9) == every


def test_evaluation_refuses_another_text() -> None:
    config = tiny_config(alphabet=b"ab")
    with pytest.raises(CorpusError):
        evaluate(config, SharedState.genesis(config), tiny_corpus())


def test_the_demo_configuration_is_of_the_promised_size() -> None:
    config = TrainingConfig.demo(tiny_corpus(), 10)
    assert 90_000 < config.num_parameters < 300_000
    assert config.compressor == "topk"


def test_command_line_prints_each_round_and_the_comparison_with_the_bigram(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one two three four " * 2000)
    arguments = ["--text", str(path), "--rounds", "2", "--workers", "2", "--max-windows", "8"]
    arguments += ["--set", "inner_steps=2", "--set", "width=16", "--set", "block_length=16"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "round 2/2" in output
    assert "bigram" in output.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "/nonexistent/text"], "cannot read the text"),
        (["--limit-bytes", "200000", "--set", "widht=3"], "no such field: widht"),
        (["--limit-bytes", "200000", "--set", "width=abc"], "width is 'abc'"),
    ],
)
def test_command_line_explains_bad_input_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_payloads_of_the_demo_are_at_least_forty_times_smaller_than_fp32() -> None:
    config = TrainingConfig.demo(tiny_corpus(), 10)
    assert fp32_bytes(config) / len(random_payload(config, 1)) > 40


@pytest.mark.parametrize("arguments", [["--device", "toaster"], ["--rounds", "0"], ["--workers", "x"]])
def test_command_line_refuses_bad_values_before_it_starts(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert arguments[0] in capsys.readouterr().err
