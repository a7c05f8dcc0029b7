"""A whole job in one process, without chain or network: for tests, and for finding good settings.

python -m training.simulate --rounds 10 --workers 4
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from primitives.hashing import tagged_hash
from training.aggregation import aggregate
from training.config import TrainingConfig
from training.corpus import Corpus, standard_library_text
from training.errors import ConfigError, TrainingError
from training.evaluation import evaluate
from training.payload import fp32_bytes
from training.state import SharedState
from training.trainer import Trainer


@dataclass(frozen=True)
class RoundReport:
    """One settled round of a simulation."""

    round_index: int
    train_loss: float
    """Mean over the workers, nats per token."""
    held_out_loss: float
    payload_bytes: int
    """Largest payload of the round."""
    seconds: float
    """Wall-clock seconds for all workers, one after the other, and the outer step."""


def simulate(
    config: TrainingConfig,
    corpus: Corpus,
    num_workers: int,
    *,
    max_windows: int = 256,
    device: str = "cpu",
    on_round: Callable[[RoundReport], None] | None = None,
) -> tuple[SharedState, list[RoundReport]]:
    """Train `config.total_rounds` rounds with workers one after the other, exactly as they would apart."""
    trainers = [Trainer(config, corpus, simulated_worker(index), device) for index in range(num_workers)]
    shared = SharedState.genesis(config)
    reports: list[RoundReport] = []
    for round_index in range(config.total_rounds):
        started = time.monotonic()
        updates = [trainer.run_round(shared, round_index) for trainer in trainers]
        named = [(trainer.worker, update.payload) for trainer, update in zip(trainers, updates, strict=True)]
        shared = aggregate(config, shared, round_index, named).state
        for trainer, update in zip(trainers, updates, strict=True):
            trainer.accept(update)
        seconds = time.monotonic() - started
        report = RoundReport(
            round_index=round_index,
            train_loss=sum(update.loss_micro for update in updates) / len(updates) / 1e6,
            held_out_loss=evaluate(config, shared, corpus, max_windows, device=device),
            payload_bytes=max(update.payload_bytes for update in updates),
            seconds=seconds,
        )
        reports.append(report)
        if on_round is not None:
            on_round(report)
    return shared, reports


def simulated_worker(index: int) -> bytes:
    """The address of a worker of a simulation, 20 bytes."""
    return tagged_hash("outerstep/simulated-worker/1", str(index).encode())[:20]


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status: 0, or 1 with one line on standard error."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        corpus = _corpus(options)
        config = _config(options, corpus)
        _announce(config, corpus, options)
        _, reports = simulate(
            config,
            corpus,
            options.workers,
            max_windows=options.max_windows,
            device=options.device,
            on_round=lambda report: _print_round(report, config),
        )
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    bigram = corpus.bigram_loss(config.block_length, options.max_windows)
    gain = bigram - reports[-1].held_out_loss
    ratio = fp32_bytes(config) / max(report.payload_bytes for report in reports)
    print(
        f"held-out loss {reports[-1].held_out_loss:.4f}, bigram {bigram:.4f}: {gain:+.4f} nats; "
        f"payloads {ratio:.0f}x smaller"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.simulate", description=__doc__)
    parser.add_argument("--workers", type=_positive, default=4)
    parser.add_argument("--rounds", type=_positive, default=10)
    parser.add_argument("--text", type=Path, help="a text file (default: the standard library's source)")
    parser.add_argument("--limit-bytes", type=_positive, help="use no more than this of the standard library's source")
    parser.add_argument("--max-windows", type=_positive, default=256, help="held-out windows per evaluation")
    parser.add_argument("--threads", type=_positive, default=1, help="torch threads")
    parser.add_argument("--device", type=_device, default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the demo configuration"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("should be at least 1")
    return value


def _device(text: str) -> str:
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"torch cannot use {text!r} here: {reason}") from error
    return text


def _corpus(options: argparse.Namespace) -> Corpus:
    if options.text is not None:
        return Corpus.from_file(options.text)
    return Corpus(standard_library_text(options.limit_bytes))


def _config(options: argparse.Namespace, corpus: Corpus) -> TrainingConfig:
    """The demo configuration with the changes asked for. Raises: ConfigError for an unknown field or a bad value."""
    changes: dict[str, object] = {}
    for assignment in options.set:
        name, _, value = assignment.partition("=")
        changes[name] = int(value) if value.lstrip("-").isdigit() else value
    demo = TrainingConfig.demo(corpus, options.rounds)
    unknown = sorted(set(changes) - set(demo.__struct_fields__))
    if unknown:
        raise ConfigError(f"no such field: {', '.join(unknown)}")
    return msgspec.structs.replace(demo, **changes)


def _announce(config: TrainingConfig, corpus: Corpus, options: argparse.Namespace) -> None:
    bigram = corpus.bigram_loss(config.block_length, options.max_windows)
    print(
        f"{corpus.size_bytes:,} bytes of text, {len(config.alphabet)} byte values, bigram {bigram:.4f} nats; "
        f"{config.num_parameters:,} parameters, {options.workers} workers, H = {config.inner_steps}",
        flush=True,
    )


def _print_round(report: RoundReport, config: TrainingConfig) -> None:
    print(
        f"round {report.round_index + 1}/{config.total_rounds}  train {report.train_loss:.4f}  "
        f"held-out {report.held_out_loss:.4f}  payload {report.payload_bytes:,} B "
        f"({fp32_bytes(config) / report.payload_bytes:.0f}x)  {report.seconds:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
