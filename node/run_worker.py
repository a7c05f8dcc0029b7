"""`outerstep worker run`: from a key, a node and a folder to a worker that follows a job."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from node.daemon import log_until_ready, stop_on_signals
from node.daemon_log import DaemonLog
from node.fallback import FallbackClient
from node.job_setup import set_up_job
from node.worker import Worker
from node.worker_home import DaemonHome, HomeOwner
from node.worker_options import WorkerOptions
from node.worker_status import WorkerStatus
from primitives.keys import PrivateKey, format_address
from training.devices import prepare_device


async def run_worker(
    urls: Sequence[str],
    key: PrivateKey,
    home_path: Path,
    options: WorkerOptions,
    *,
    on_step: Callable[[int, int], None] | None = None,
    as_json: bool = False,
) -> None:
    """Take part in a job until it is over, or SIGINT or SIGTERM asks for a clean end.

    Args: urls, addresses of nodes' services, the first that answers is used; home_path, a folder for this worker;
    on_step, called in the training thread with (inner steps done, inner steps of the round); as_json, log lines as JSON
    on standard output instead of text on standard error.
    Raises: training.errors.ConfigError for a device that cannot be used; DaemonError when it cannot start or go on.
    """
    prepare_device(options.device, options.threads)
    with DaemonHome(home_path) as home, DaemonLog(home.log_file, as_json=as_json) as log, stop_on_signals() as stop:
        account = format_address(key.address)
        status = WorkerStatus(home, on_step, job=options.job_id, account=account)
        log.info("worker starts", account=account, job=options.job_id, nodes=",".join(urls))
        async with FallbackClient(urls, key=key) as client:
            setup = await log_until_ready(
                lambda: set_up_job(
                    client, options.job_id, home.data, log, allow_short_phases=options.allow_short_phases
                ),
                stop,
                log,
            )
            if setup is not None:
                home.bind(HomeOwner(chain_id=setup.chain_id, job_id=options.job_id, account=account))
                worker = await asyncio.to_thread(Worker, client, key, home, setup, options, log, status)
                await worker.run(stop)
        log.info(
            "worker ends",
            stopped=stop.is_set(),
            state=status["state"],
            settled_rounds=status["settled_rounds"],
            earned=status["earned"],
        )
