"""Workers' bonds."""

from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext
from abci_app.errors import BondTooSmall, StakeLocked, UnknownWorker, WorkerExists
from abci_app.ledger import burn, debit, params_of
from abci_app.records import Worker
from abci_app.rules.effect import NOTHING_TO_TELL, Effect
from abci_app.rules.stake import start_unbonding
from abci_app.state import Branch, ReadableState
from primitives.amounts import slash_amount


def register_worker(branch: Branch, message: m.RegisterWorker, sender: bytes, block: BlockContext) -> Effect:
    """A worker whose bond was slashed below the minimum sends this again to fill it up.

    Raises: WorkerExists, BondTooSmall, InsufficientFunds.
    """
    least = params_of(branch).min_worker_bond
    worker = tables.WORKERS.get(branch, sender) or Worker(address=sender, bond=0)
    if worker.bond >= least:
        raise WorkerExists("the sender is a worker already")
    if worker.bond + message.bond < least:
        raise BondTooSmall(got=worker.bond + message.bond, want=least)
    debit(branch, sender, message.bond)
    tables.WORKERS.put(branch, replace(worker, bond=worker.bond + message.bond), sender)
    return NOTHING_TO_TELL


def retire_worker(branch: Branch, message: m.RetireWorker, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownWorker, StakeLocked."""
    worker = worker_of(branch, sender)
    if worker.open_jobs:
        raise StakeLocked(f"the worker is a member of {worker.open_jobs} open jobs; leave them first")
    tables.WORKERS.delete(branch, sender)
    start_unbonding(branch, sender, worker.bond, "worker", block)
    return NOTHING_TO_TELL


def worker_of(state: ReadableState, address: bytes) -> Worker:
    """Raises: UnknownWorker."""
    worker = tables.WORKERS.get(state, address)
    if worker is None:
        raise UnknownWorker("the sender is not a registered worker")
    return worker


def count_open_job(branch: Branch, address: bytes, change: int) -> None:
    """Lock (+1) or unlock (-1) the worker's bond for one job."""
    worker = worker_of(branch, address)
    tables.WORKERS.put(branch, replace(worker, open_jobs=worker.open_jobs + change), address)


def slash_worker(branch: Branch, address: bytes) -> int:
    """Burn the no-reveal share of the worker's bond; the amount burned."""
    worker = worker_of(branch, address)
    amount = slash_amount(worker.bond, params_of(branch).slash_no_reveal_ppm)
    tables.WORKERS.put(branch, replace(worker, bond=worker.bond - amount), address)
    burn(branch, amount)
    return amount
