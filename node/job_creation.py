"""A new training job from a plan: the text into storage, the genesis state built, the terms on chain."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from abci_app.errors import InvalidTransaction, MalformedMessage
from abci_app.forms import check_form
from abci_app.messages import CreateJob, JobTerms
from abci_app.params import Params
from abci_app.records import Job
from abci_app.rules.jobs import check_spans
from node.client import Client
from node.errors import NodeError
from node.storing import Progress, store_file
from primitives.amounts import AmountError, check_amount, parse_tokens
from primitives.encoding import encode
from primitives.hashing import tagged_hash
from primitives.keys import KeyFormatError, parse_address
from storage.tree import FileTree
from training import Corpus, SharedState, TrainingConfig
from training.errors import ConfigError

DATA_SERIES: Final = "job-data"


class PlanError(NodeError):
    """A plan for a job that cannot be carried out; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What a job should be. In TOML: these names at the top, and a table `training` with fields of TrainingConfig."""

    rounds: int = 10
    min_workers: int = 2
    max_workers: int = 16
    reward: int | str = "1"
    """For each round, shared by its workers: tokens as text such as "2.5", or an integer of 10^-6 token."""
    max_samples: int = 0
    """Most samples a worker may report for a round; 0: just those that the configuration has."""
    train_blocks: int = 600
    commit_blocks: int = 60
    reveal_blocks: int = 120
    score_blocks: int = 120
    aggregate_blocks: int = 120
    scorers: tuple[str, ...] = ()
    """Operators of validators, `outer1…`."""
    data_duration: int = 100_000
    """How long the text is stored, in blocks."""
    data_replicas: int = 2
    label: str = ""
    """Tells two jobs with the same terms apart."""
    training: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "JobPlan":
        """A plan from what a TOML file or flags say.

        Raises: PlanError naming an unknown field or one of the wrong type.
        """
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise PlanError(f"{unknown[0]} is not a field of a job; known are {', '.join(sorted(known))}")
        try:
            return msgspec.convert(dict(values), cls)
        except msgspec.ValidationError as error:
            raise PlanError(str(error)) from error

    @property
    def reward_micro(self) -> int:
        """Raises: PlanError."""
        try:
            return parse_tokens(self.reward) if isinstance(self.reward, str) else check_amount(self.reward)
        except AmountError as error:
            raise PlanError(f"reward: {error}") from error

    def config(self, corpus: Corpus) -> TrainingConfig:
        """The training configuration for this text.

        Raises: PlanError.
        """
        follows = {"alphabet", "total_rounds"}
        fixed = sorted(follows & set(self.training))
        if fixed:
            raise PlanError(f"training.{fixed[0]} follows from the text and the rounds; leave it out")
        known = set(TrainingConfig.__struct_fields__) - follows
        unknown = sorted(set(self.training) - known)
        if unknown:
            raise PlanError(f"training.{unknown[0]} is not a setting; known are {', '.join(sorted(known))}")
        try:
            return TrainingConfig(alphabet=corpus.alphabet, total_rounds=self.rounds, **self.training)
        except (ConfigError, TypeError) as error:
            raise PlanError(f"training: {error}") from error

    def terms(self, config: TrainingConfig, data: FileTree, genesis_root: bytes) -> JobTerms:
        """What the chain is asked for, in the form that it takes.

        Raises: PlanError.
        """
        try:
            scorers = tuple(sorted(parse_address(text) for text in self.scorers))
        except KeyFormatError as error:
            raise PlanError(f"scorers: {error}") from error
        terms = JobTerms(
            manifest=config.to_manifest(),
            data_root=data.root,
            data_size=data.size,
            genesis_root=genesis_root,
            num_rounds=self.rounds,
            min_workers=self.min_workers,
            max_workers=self.max_workers,
            reward_per_round=self.reward_micro,
            max_samples=self.max_samples or config.samples_per_round,
            train_blocks=self.train_blocks,
            commit_blocks=self.commit_blocks,
            reveal_blocks=self.reveal_blocks,
            score_blocks=self.score_blocks,
            aggregate_blocks=self.aggregate_blocks,
            scorers=scorers,
        )
        try:
            check_form(CreateJob(key=bytes(32), terms=terms))
        except MalformedMessage as error:
            raise PlanError(str(error).removeprefix("terms.")) from error
        return terms


async def create_job(
    client: Client, plan: JobPlan, text: Path, *, journal: Path, on_progress: Progress | None = None
) -> Job:
    """Store the text, build the genesis state, and open the job. Run again it finds the job it opened, unless over.

    Nothing is paid for a plan that cannot be carried out.

    Raises: PlanError, NodeError, storage.errors.StorageError, training.errors.TrainingError.
    """
    corpus = await asyncio.to_thread(Corpus.from_file, text)
    config = plan.config(corpus)
    genesis = await asyncio.to_thread(SharedState.genesis, config)
    terms = plan.terms(config, await asyncio.to_thread(FileTree.build, text), genesis.root)
    _check_spans(terms, await client.params())
    await store_file(
        client,
        text,
        tier="hot",
        replicas=plan.data_replicas,
        duration=plan.data_duration,
        series=DATA_SERIES,
        journal=journal,
        on_progress=on_progress,
    )
    return await open_job(client, terms, label=plan.label)


def _check_spans(terms: JobTerms, params: Params) -> None:
    """Raises: PlanError when the chain would refuse so long phases."""
    try:
        check_spans(terms, params)
    except InvalidTransaction as error:
        raise PlanError(str(error)) from error


async def open_job(client: Client, terms: JobTerms, *, label: str = "") -> Job:
    """The living job of the sender with these terms and label: the one there is, else a new one.

    Raises: NodeError.
    """
    assert client.key is not None
    attempt = 0
    while True:
        key = tagged_hash("outerstep/job-key/1", encode([client.key.address, encode(terms), label, attempt]))
        sent = await client.send([CreateJob(key=key, terms=terms)])
        job = await client.job(sent.ids[0])
        if job is None:
            raise NodeError(f"the node does not know job {sent.ids[0]} yet; is it catching up? Try again")
        if job.status == "open":
            return job
        attempt += 1
