"""The training worker: follows one job from round to round.

    train -> promise on chain -> rows to the nodes, promise opened -> next state computed and attested -> settled

What to do next follows at every block from the chain's record and from what is on disk, never from a timer, so a
worker that is killed anywhere goes on where the chain stands: with the promise it made (`intents/`), or from the last
settled round (`states/`).
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from abci_app.messages import AttestState
from abci_app.records import Job, Round, Settlement, Submission
from abci_app.rules.rounds import needed_expiry
from node import publishing
from node.client import Client
from node.daemon import follow
from node.intents import Intent, IntentStore
from node.job_setup import JobSetup
from node.keeping import Keeper, stores_checkpoint
from node.membership import Membership
from node.participant import Participant
from node.saved_state import SavedStates
from node.training_task import Abandoned, TrainingTask
from node.view import JobView
from node.worker_home import DaemonError, DaemonHome
from node.worker_options import WorkerOptions
from node.worker_status import WorkerStatus
from primitives.keys import PrivateKey
from training import LocalUpdate, Trainer
from training.errors import DivergedError, PrivateStateError, StateError

UNOPENABLE_ROUNDS: Final = 2
"""Rounds in a row with a promise that this worker did not make, after which it concludes that another one runs."""


class KeyInUse(DaemonError):
    """Another worker acts with this key."""


class Worker:
    """One worker in one job; see `act`. Made by `node.run_worker`."""

    def __init__(
        self,
        client: Client,
        key: PrivateKey,
        home: DaemonHome,
        setup: JobSetup,
        options: WorkerOptions,
        log: FilteringBoundLogger,
        status: WorkerStatus,
    ) -> None:
        self._client = client
        self._me = key.address
        self._setup = setup
        self._options = options
        self._log = log
        self._status = status
        self._intents = IntentStore(home.intents)
        self._states = SavedStates(home.states)
        self._keeper = Keeper(client, home, options, log)
        self._trainer = Trainer(setup.config, setup.corpus, self._me, options.device)
        self._participant = Participant(client, setup, home.data, log, local_payload=self._own_payload)
        self._membership = Membership(client, self._me, setup.genesis.root, options, log)
        self._training: TrainingTask | None = None
        self._sat_out = -1
        self._foreign: list[int] = []
        self._resume()

    async def run(self, stop: asyncio.Event) -> None:
        """Register, join, and take part until the job is over or `stop` is set.

        Raises: DaemonError when it cannot go on, with what to do.
        """
        try:
            await follow(self._client, self._setup.job_id, self, stop, self._log)
        finally:
            await self._abandon_training()
            await self._keeper.finish(timeout_s=5.0 if stop.is_set() else 120.0)
        self._status.update(state="stopped" if stop.is_set() else "done")

    def wakers(self) -> Sequence[asyncio.Task[Any]]:
        return [self._training.task] if self._training is not None else []

    async def act(self, view: JobView) -> bool:
        """One look at the chain: settle what is settled, then do this phase's part."""
        await self._settle(view.job)
        round_ = view.round
        self._status.update(
            height=view.height, round=round_.index if round_ else -1, phase=round_.phase if round_ else ""
        )
        if view.is_over:
            self._log.info("job is over", status=view.job.status, settled_rounds=view.job.settled_rounds)
            self._keeper.log()
            return True
        if round_ is None or self._me not in round_.expected:
            await self._abandon_training()
            await self._join(view.job)
            self._status.update(state="waiting")
        elif self._participant.shared.root == round_.base_root:
            await self._take_part(view, round_)
        return False

    # --- taking part ----------------------------------------------------------------------------------------------
    async def _take_part(self, view: JobView, round_: Round) -> None:
        mine = view.submissions.get(self._me)
        if mine is None:
            if round_.phase in ("train", "commit"):
                await self._train_and_commit(round_)
            else:
                await self._abandon_training()
            return
        intent = self._intents.get(round_.index)
        if intent is None or intent.commitment != mine.commitment:
            self._note_foreign_promise(round_.index)
            return
        if round_.phase == "reveal" and not mine.blob:
            await self._reveal(view, round_, intent)
        elif round_.phase == "aggregate" and self._me in round_.included and not mine.state_root:
            await self._attest(view, round_)
        else:
            self._status.update(state=_state_of(mine))

    async def _train_and_commit(self, round_: Round) -> None:
        intent = self._intents.get(round_.index)
        if intent is None or intent.base_round != round_.base_round:
            update = await self._update_for(round_)
            if update is None:
                return
            await asyncio.to_thread(self._save)
            intent = await publishing.make_intent(self._client, round_, update)
            self._intents.put(intent)
        self._status.update(state="committing")
        await publishing.commit(self._client, intent)
        self._log.info("committed", round=round_.index, loss=intent.loss_micro / 1e6, payload_bytes=len(intent.payload))
        self._status.update(state="committed")

    async def _update_for(self, round_: Round) -> LocalUpdate | None:
        """This round's update, once there is one; starts the training where it is not under way."""
        if self._training is not None and self._training.round_index != round_.index:
            await self._abandon_training()
        if self._training is None:
            pending = self._trainer.pending
            if pending is not None and (pending.round_index, pending.base_round) == (round_.index, round_.base_round):
                return pending
            if self._sat_out != round_.index:
                self._start_training(round_)
            return None
        if not self._training.task.done():
            return None
        training, self._training = self._training, None
        try:
            return training.task.result()
        except (DivergedError, StateError) as error:
            self._sat_out = round_.index
            self._log.error("no update for this round", round=round_.index, reason=str(error))
        return None

    def _start_training(self, round_: Round) -> None:
        num_steps = self._setup.config.inner_steps
        self._log.info("training", round=round_.index, steps=num_steps, base_round=round_.base_round)
        self._status.update(state="training", step=0, num_steps=num_steps)
        self._training = TrainingTask(
            self._trainer,
            self._participant.shared,
            round_.index,
            lambda step, loss: self._status.step(step + 1, num_steps, loss),
        )

    async def _abandon_training(self) -> None:
        if self._training is not None:
            training, self._training = self._training, None
            await training.abandon()
            error = training.task.exception()
            if error is not None and not isinstance(error, Abandoned | DivergedError | StateError):
                raise error

    async def _reveal(self, view: JobView, round_: Round, intent: Intent) -> None:
        self._status.update(state="revealing")
        expiry = max(view.height + self._options.blob_lifetime, needed_expiry(view.job, round_))
        await publishing.reveal(self._client, intent, expiry_height=expiry)
        self._log.info("revealed", round=round_.index, blob=intent.header.commitment.hex())
        self._status.update(state="revealed", bytes_sent=self._status["bytes_sent"] + len(intent.payload))

    async def _attest(self, view: JobView, round_: Round) -> None:
        self._status.update(state="aggregating")
        result = await self._participant.compute(round_.index, view.included_blobs())
        for worker in result.rejected:
            self._log.warning("unusable update", round=round_.index, worker=worker.hex())
        message = AttestState(
            job_id=round_.job_id, round_index=round_.index, state_root=result.state.root, rejected=result.rejected
        )
        await self._client.send([message])
        self._log.info("attested", round=round_.index, root=result.state.root.hex(), updates=len(result.included))
        self._status.update(state="attested")

    def _note_foreign_promise(self, round_index: int) -> None:
        """A promise by our key that we cannot open: the home was lost, or somebody else uses the key."""
        if round_index in self._foreign:
            return
        self._foreign = [*(index for index in self._foreign if index == round_index - 1), round_index]
        if len(self._foreign) >= UNOPENABLE_ROUNDS:
            raise KeyInUse("another worker commits with this key; stop one of them, each worker needs a key of its own")
        self._log.warning(
            "this round has a promise by our key that was not made here; sitting it out", round=round_index
        )

    # --- settlement -----------------------------------------------------------------------------------------------
    async def _settle(self, job: Job) -> None:
        """Bring shared and private state to the last settled round, and save both as one."""
        before = self._participant.shared
        if (before.round_index, before.root) != (job.settled_round, job.state_root):
            await self._abandon_training()
            passed = await self._participant.catch_up(job)
            for settlement in passed:
                self._settle_own(settlement)
            await asyncio.to_thread(self._save)
            self._after_settlements(job, passed)
        if self._status["settled_rounds"] != job.settled_rounds:  # also after a restart between settlements
            members = await self._client.members(job.id)
            earned = next((member.earned for member in members if member.worker == self._me), 0)
            self._status.update(settled_rounds=job.settled_rounds, earned=earned)
        self._drop_what_is_over(job)

    def _settle_own(self, settlement: Settlement) -> None:
        """Accept or discard the update that was made for this round."""
        outcome = next((item for item in settlement.outcomes if item.worker == self._me), None)
        pending = self._trainer.pending
        if pending is not None and pending.round_index == settlement.round_index:
            if outcome is not None and outcome.verdict in ("paid", "disagreed"):
                self._trainer.accept(pending)
            else:
                self._trainer.discard()
        self._log.info(
            "settled",
            round=settlement.round_index,
            root=settlement.state_root.hex(),
            verdict=outcome.verdict if outcome else "not in it",
            paid=outcome.paid if outcome else 0,
        )

    def _drop_what_is_over(self, job: Job) -> None:
        """Void rounds leave no settlement: what was made for them is dropped once the chain is past them."""
        current = job.open_round if job.open_round >= 0 else job.next_round
        pending = self._trainer.pending if self._training is None else None
        if pending is not None and pending.round_index < current:
            self._log.info("round is void", round=pending.round_index)
            self._trainer.discard()
        for round_index in self._intents.rounds():
            if round_index < current:
                self._intents.drop(round_index)

    def _after_settlements(self, job: Job, passed: list[Settlement]) -> None:
        if not passed:
            return
        wanted = self._options.store_checkpoints
        if stores_checkpoint(self._me, passed[-1]) if wanted is None else wanted:
            self._keeper.checkpoint(self._participant.shared)
        self._keeper.forget_old_checkpoints()
        if self._options.log_every and job.settled_rounds % self._options.log_every == 0:
            self._keeper.log()

    # --- membership, disk -----------------------------------------------------------------------------------------
    async def _join(self, job: Job) -> None:
        """Join where that is not so yet, or no longer. Raises: CannotJoin, NodeError."""
        if await self._membership.join(job):
            self._log.info("joined", job=job.id)

    def _own_payload(self, commitment: bytes) -> bytes | None:
        for round_index in self._intents.rounds():
            intent = self._intents.get(round_index)
            if intent is not None and intent.header.commitment == commitment:
                return intent.payload
        return None

    def _save(self) -> None:
        self._states.save(self._participant.shared, self._trainer.save)

    def _resume(self) -> None:
        """Take up the newest state on disk, both parts of it."""
        saved = self._states.newest()
        if saved is None or saved[0].config.hash != self._setup.config.hash:
            return
        shared, private = saved
        self._participant.shared = shared
        try:
            self._trainer.load(private)
        except PrivateStateError as error:
            self._log.warning("private state is not usable; going on with a fresh one", reason=str(error))
        self._log.info("resumed", settled_round=shared.round_index, root=shared.root.hex())


def _state_of(mine: Submission) -> str:
    if mine.state_root:
        return "attested"
    return "revealed" if mine.blob else "committed"
