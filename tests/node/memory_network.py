"""The real rules in memory behind a `Client`, with blobs and files in a dictionary: for tests of the daemons' logic.

Blocks come with transactions, one each; nothing depends on a clock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
import structlog.testing
import torch
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from abci_app import records, tables
from abci_app.ledger import account_of, counters_of
from abci_app.messages import CreateJob, JobTerms, Message
from abci_app.params import Params
from abci_app.transactions import tx_hash
from da_layer.errors import BlobUnavailable
from node import participant, publishing
from node.client import Client, Page, SignedTransaction, TxResult, TxStatus
from node.errors import NodeUnreachable, TransactionFailed
from node.job_setup import JobSetup, set_up_job
from node.sending import OnSigned
from node.worker import Worker
from node.worker_home import DaemonHome
from node.worker_options import WorkerOptions
from node.worker_status import WorkerStatus
from primitives.blobs import Attestation, BlobHeader, BlobPromise, Certificate, ServiceSet
from primitives.encoding import decode, encode
from primitives.hashing import sha256
from primitives.keys import PrivateKey, format_address
from storage.tree import FileTree
from tests.abci_app.rules.chain import CHAIN_ID, PEOPLE, TOKEN, VALIDATORS, Chain, address, key
from tests.training.helpers import SENTENCE, tiny_config
from training import Corpus, SharedState, TrainingConfig

TEXT = (SENTENCE + "\n").encode() * 300
torch.set_num_threads(1)
CAPTURED = structlog.testing.LogCapture()
LOG: FilteringBoundLogger = structlog.wrap_logger(None, processors=[CAPTURED])


@dataclass
class MemoryNetwork:
    """One chain, what its nodes hold, and the event of a new block."""

    chain: Chain = field(default_factory=Chain)
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    unreachable: bool = False
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once somebody has asked while it was unreachable."""
    sent: list[tuple[bytes, Message]] = field(default_factory=list)
    """(sender, message) of everything that the rules accepted."""
    results: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """Hash of every committed transaction -> the ids it made."""
    on_send: Callable[[bytes, Sequence[Message]], None] | None = None
    """Called before each transaction, to break things at the right moment."""
    new_block: asyncio.Condition = field(default_factory=asyncio.Condition)

    def client(self, account: PrivateKey) -> "MemoryClient":
        return MemoryClient(self, account)

    async def make_block(self, *txs: bytes) -> list[Any]:
        receipts = self.chain.block(*txs)
        async with self.new_block:
            self.new_block.notify_all()
        return receipts

    async def next_block(self) -> None:
        async with self.new_block:
            await self.new_block.wait()

    async def pass_deadline(self, index: int) -> None:
        """Empty blocks until the phase that round `index` is in has ended."""
        deadline = self.chain.round(index).deadline
        while self.chain.height <= deadline:
            await self.make_block()

    def messages_of(self, account: PrivateKey, kind: type[Message]) -> list[Message]:
        return [message for sender, message in self.sent if sender == account.address and isinstance(message, kind)]


class MemoryClient(Client):
    """The part of `Client` that daemons use, answered from the chain in memory."""

    def __init__(self, network: MemoryNetwork, account: PrivateKey) -> None:
        super().__init__("http://memory", key=account, chain_id=CHAIN_ID)
        self._net = network
        self._account = account

    @property
    def _state(self) -> Any:
        if self._net.unreachable:
            self._net.refused.set()
            raise NodeUnreachable("http://memory", "unplugged")
        return self._net.chain.state

    async def height(self) -> int:
        assert self._state is not None
        return self._net.chain.height

    async def wait_for_height(self, height: int, *, timeout_s: float | None = None) -> int:
        async with asyncio.timeout(timeout_s), self._net.new_block:
            await self._net.new_block.wait_for(lambda: self._net.chain.height >= height)
        return self._net.chain.height

    async def params(self) -> Params:
        return self._net.chain.params

    async def account(self, address: bytes) -> records.Account:
        return account_of(self._state, address)

    async def validator(self, operator: bytes) -> records.Validator | None:
        return tables.VALIDATORS.get(self._state, operator)

    async def worker(self, address: bytes) -> records.Worker | None:
        return tables.WORKERS.get(self._state, address)

    async def service_set(self, version: int | None = None) -> ServiceSet | None:
        newest = counters_of(self._state).set_version
        return tables.SERVICE_SETS.get(self._state, newest if version is None else version)

    async def job(self, job_id: int) -> records.Job | None:
        return tables.JOBS.get(self._state, job_id)

    async def round(self, job_id: int, index: int | None = None) -> records.Round | None:
        assert index is not None
        return tables.ROUNDS.get(self._state, job_id, index)

    async def blob(
        self, commitment: bytes, *, publisher: bytes | None = None, namespace: str | None = None
    ) -> records.Blob | None:
        found = [record for _, record in tables.BLOBS.iterate(self._state, commitment)]
        return next((record for record in found if publisher in (None, record.publisher)), None)

    async def settlements(self, job_id: int, cursor: str | None = None, limit: int = 100) -> Page[records.Settlement]:
        return Page(items=tuple(record for _, record in tables.SETTLEMENTS.iterate(self._state, job_id)))

    async def settlement(self, job_id: int, index: int) -> records.Settlement | None:
        return tables.SETTLEMENTS.get(self._state, job_id, index)

    async def members(self, job_id: int) -> list[records.Member]:
        return [record for _, record in tables.MEMBERS.iterate(self._state, job_id)]

    async def submissions(self, job_id: int, index: int) -> list[records.Submission]:
        return [record for _, record in tables.SUBMISSIONS.iterate(self._state, job_id, index)]

    async def scores(self, job_id: int, index: int) -> list[records.ScoreSheet]:
        return [record for _, record in tables.SCORE_SHEETS.iterate(self._state, job_id, index)]

    async def deals(self, *arguments: Any, **filters: Any) -> Page[records.Deal]:
        found = [record for _, record in tables.DEALS.iterate(self._state)]
        wanted = {name: value for name, value in filters.items() if name in ("series", "status", "owner") and value}
        return Page(
            items=tuple(deal for deal in found if all(getattr(deal, name) == value for name, value in wanted.items()))
        )

    async def deal(self, deal_id: int) -> records.Deal | None:
        return tables.DEALS.get(self._state, deal_id)

    async def send(
        self,
        messages: Sequence[Message],
        *,
        wait: bool = True,
        timeout_s: float = 60.0,
        fee: int | None = None,
        on_signed: OnSigned | None = None,
    ) -> TxResult:
        assert self._state is not None
        if self._net.on_send is not None:
            self._net.on_send(self._account.address, messages)
        tx = self._net.chain.tx(_name_of(self._account), *messages)
        signed = SignedTransaction(tx, tx_hash(tx), account_of(self._state, self._account.address).nonce, 0)
        if on_signed is not None:
            on_signed(signed)
        result = await self.submit(signed, wait=wait)
        self._net.sent += [(self._account.address, message) for message in messages]
        return result

    async def submit(self, signed: SignedTransaction, *, wait: bool = True, timeout_s: float = 60.0) -> TxResult:
        assert self._state is not None
        if signed.hash not in self._net.results:
            await self._execute(signed.data)
        ids = self._net.results[signed.hash]
        return TxResult(hash=signed.hash, height=self._net.chain.height, code=0, log="", ids=ids if wait else ())

    async def _execute(self, tx: bytes) -> None:
        (receipt,) = await self._net.make_block(tx)
        if receipt.code != 0:
            raise TransactionFailed(receipt.code, receipt.log, tx_hash=sha256(tx), height=self._net.chain.height)
        self._net.results[sha256(tx)] = tuple(decode(receipt.data, list[int]))

    async def tx(self, tx_hash: bytes, *, wait_s: float = 0.0) -> TxStatus:
        assert self._state is not None
        if tx_hash not in self._net.results:
            return TxStatus(hash=tx_hash, status="unknown")
        return TxStatus(hash=tx_hash, status="committed", height=1, ids=self._net.results[tx_hash])


def _name_of(account: PrivateKey) -> str:
    return next(name for name in (*PEOPLE, *VALIDATORS) if key(name).address == account.address)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    """A chain of four validators; rows go into a dictionary, and every validator attests."""
    net = MemoryNetwork()
    CAPTURED.entries.clear()

    async def disperse(
        session: Any, blob: Any, promise: BlobPromise, *arguments: Any, on_progress: Any = None, **options: Any
    ) -> Certificate:
        header: BlobHeader = promise.header
        net.blobs[header.commitment] = b"".join(blob.rows[: header.k])[: header.size]
        signed = [Attestation(address(v), key(f"service:{v}").sign(promise.attestation_digest)) for v in VALIDATORS]
        return Certificate(promise, tuple(sorted(signed, key=lambda item: item.operator)))

    async def retrieve(session: Any, header: BlobHeader, *arguments: Any, **options: Any) -> bytes:
        if header.commitment not in net.blobs:
            raise BlobUnavailable("too few rows", {}, have=0, need=header.k)
        return net.blobs[header.commitment]

    monkeypatch.setattr(publishing, "disperse", disperse)
    monkeypatch.setattr(participant, "retrieve", retrieve)
    return net


def tiny_job_config(**changes: object) -> TrainingConfig:
    return tiny_config(alphabet=Corpus(TEXT).alphabet, **changes)


async def open_tiny_job(net: MemoryNetwork, **changes: Any) -> int:
    """A job of two workers and two rounds on a text of 26 kB; its text has to be in each worker's home."""
    config = tiny_job_config()
    tree = FileTree.build(TEXT)
    terms = JobTerms(
        manifest=config.to_manifest(),
        data_root=tree.root,
        data_size=tree.size,
        genesis_root=SharedState.genesis(config).root,
        num_rounds=2,
        min_workers=2,
        max_workers=4,
        reward_per_round=100 * TOKEN,
        max_samples=config.samples_per_round,
        train_blocks=50,
        commit_blocks=20,
        reveal_blocks=20,
        score_blocks=20,
        aggregate_blocks=20,
        scorers=(),
    )
    terms = replace(terms, **changes)
    result = await net.client(key("alice")).send([CreateJob(key=sha256(encode(terms)), terms=terms)])
    return result.ids[0]


@dataclass
class RunningWorker:
    """A worker as a task in this process."""

    worker: Worker
    stop: asyncio.Event
    task: asyncio.Task[None]
    home: Path


async def set_up(net: MemoryNetwork, name: str, home: DaemonHome, job_id: int) -> JobSetup:
    """The job as `name` sees it, with its text in place."""
    tree = FileTree.build(TEXT)
    (home.data / tree.root.hex()).write_bytes(TEXT)
    return await set_up_job(net.client(key(name)), job_id, home.data, LOG)


@contextlib.asynccontextmanager
async def running(
    net: MemoryNetwork, name: str, home_path: Path, job_id: int, **options: Any
) -> AsyncIterator[RunningWorker]:
    """The worker `name`, following the job until the end of the block."""
    with DaemonHome(home_path) as home:
        setup = await set_up(net, name, home, job_id)
        status = WorkerStatus(home, job=job_id, account=format_address(address(name)))
        chosen = WorkerOptions(**{"job_id": job_id, "store_checkpoints": False, **options})
        client = net.client(key(name))
        worker = Worker(client, key(name), home, setup, chosen, LOG, status)
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        try:
            yield RunningWorker(worker, stop, task, home_path)
        finally:
            stop.set()
            await asyncio.wait({task})
            await client.close()
