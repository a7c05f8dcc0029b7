"""The scorer: a validator that a job names judges every revealed update on held-out text, and attests states.

The score of a worker says how far its own share of the outer step lowers the held-out loss, in 10^-6 nats
(training.scoring); an unusable payload scores far below zero.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from abci_app.messages import AttestState, ScoreUpdates
from abci_app.records import Round
from node.client import Client
from node.daemon import follow, log_until_ready, stop_on_signals
from node.daemon_log import DaemonLog
from node.fallback import FallbackClient
from node.job_setup import JobSetup, set_up_job
from node.participant import Participant
from node.view import JobView
from node.worker_home import DaemonError, DaemonHome, HomeOwner
from primitives.keys import PrivateKey, format_address
from training import score_updates
from training.devices import prepare_device


class NotNamed(DaemonError):
    """The job does not name this validator as a scorer."""


class Scorer:
    """One scorer of one job; see `act`."""

    def __init__(
        self,
        client: Client,
        key: PrivateKey,
        home: DaemonHome,
        setup: JobSetup,
        log: FilteringBoundLogger,
        *,
        device: str = "cpu",
        max_windows: int = 64,
    ) -> None:
        """Raises: NotNamed."""
        if key.address not in setup.terms.scorers:
            raise NotNamed(f"job {setup.job_id} does not name {format_address(key.address)} as a scorer")
        self._client = client
        self._me = key.address
        self._setup = setup
        self._log = log
        self._device = device
        self._max_windows = max_windows
        self._participant = Participant(client, setup, home.data, log)

    def wakers(self) -> Sequence[asyncio.Task[Any]]:
        return ()

    async def act(self, view: JobView) -> bool:
        """One look at the chain: catch up, then score or attest where this round waits for it."""
        for settlement in await self._participant.catch_up(view.job):
            self._log.info("settled", round=settlement.round_index, root=settlement.state_root.hex())
        round_ = view.round
        if round_ is None or self._participant.shared.root != round_.base_root:
            return view.is_over
        if round_.phase not in ("score", "aggregate"):
            return False
        sheets = await self._client.scores(round_.job_id, round_.index)
        mine = next((sheet for sheet in sheets if sheet.scorer == self._me), None)
        if round_.phase == "score" and mine is None:
            await self._score(view, round_)
        elif round_.phase == "aggregate" and (mine is None or not mine.state_root):
            await self._attest(view, round_)
        return False

    async def _score(self, view: JobView, round_: Round) -> None:
        blobs = view.revealed_blobs()
        payloads = await asyncio.gather(
            *(self._participant.payload(worker, blob, round_.index) for worker, blob in blobs)
        )
        values = await asyncio.to_thread(
            score_updates,
            self._setup.config,
            self._participant.shared,
            self._setup.corpus,
            [(worker, payload) for (worker, _), payload in zip(blobs, payloads, strict=True)],
            round_index=round_.index,
            max_windows=self._max_windows,
            device=self._device,
        )
        scores = tuple((worker, score) for (worker, _), score in zip(blobs, values, strict=True))
        for worker, score in scores:
            self._log.info("score", round=round_.index, worker=worker.hex(), score_micro=score)
        await self._client.send([ScoreUpdates(job_id=round_.job_id, round_index=round_.index, scores=scores)])

    async def _attest(self, view: JobView, round_: Round) -> None:
        result = await self._participant.compute(round_.index, view.included_blobs())
        message = AttestState(
            job_id=round_.job_id, round_index=round_.index, state_root=result.state.root, rejected=result.rejected
        )
        await self._client.send([message])
        self._log.info("attested", round=round_.index, root=result.state.root.hex())


async def run_scorer(
    urls: Sequence[str],
    key: PrivateKey,
    home_path: Path,
    *,
    job_id: int,
    device: str = "cpu",
    threads: int | None = None,
    max_windows: int = 64,
    as_json: bool = False,
) -> None:
    """Score a job until it is over, or SIGINT or SIGTERM asks for a clean end. `key` is the operator's.

    `as_json`: log lines as JSON on standard output instead of text on standard error.

    Raises: training.errors.ConfigError for a device that cannot be used; DaemonError when it cannot start or go on.
    """
    prepare_device(device, threads)
    with DaemonHome(home_path) as home, DaemonLog(home.log_file, as_json=as_json) as log, stop_on_signals() as stop:
        account = format_address(key.address)
        log.info("scorer starts", account=account, job=job_id, nodes=",".join(urls))
        async with FallbackClient(urls, key=key) as client:
            setup = await log_until_ready(lambda: set_up_job(client, job_id, home.data, log), stop, log)
            if setup is not None:
                home.bind(HomeOwner(chain_id=setup.chain_id, job_id=job_id, account=account))
                scorer = Scorer(client, key, home, setup, log, device=device, max_windows=max_windows)
                await follow(client, job_id, scorer, stop, log)
        log.info("scorer ends", stopped=stop.is_set())
