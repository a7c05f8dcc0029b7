"""Executing blocks: signatures in parallel, and where it pays, the whole block ahead of its decision.

Between ProcessProposal, which shows a block, and FinalizeBlock, which says that it was decided, votes travel and are
written to disk. A node that works ahead executes the block meanwhile, over the committed state and in memory; when just
this block is decided the result is there, and when another one is, it is dropped. Nothing but time depends on it.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog

from abci_app import execution
from abci_app.block import BlockContext, Event, Evidence, Receipt
from abci_app.errors import InvalidTransaction
from abci_app.known import KnownTransactions
from abci_app.parsed import verify_transaction
from abci_app.server import abci_pb2 as pb
from abci_app.state import Branch
from abci_app.store import PreparedCommit, Store

CODESPACE: Final = "outerstep"
"""Of the codes of refused transactions."""
FEW_SIGNATURES: Final = 32
"""Up to so many are not worth other threads."""
VERIFIED_AT_ONCE: Final = 64
"""Signatures that one thread verifies before the next look at what else there is."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Block:
    """All that executing a block depends on, besides the state before it."""

    height: int
    hash: bytes
    time_s: int
    evidence: tuple[Evidence, ...]
    txs: tuple[bytes, ...]

    @classmethod
    def of(cls, request: pb.RequestProcessProposal | pb.RequestFinalizeBlock) -> "Block":
        return cls(
            height=request.height,
            hash=request.hash,
            time_s=request.time.seconds,
            evidence=tuple(_evidence(request.misbehavior)),
            txs=tuple(request.txs),
        )


@dataclass(frozen=True, slots=True)
class Start:
    """What blocks are executed on, besides the committed state."""

    chain_id: str
    genesis: Branch | None
    """The state that InitChain made, until the first commit has written it."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What comes out of a block: the answer to FinalizeBlock, and what Commit will write."""

    response: pb.ResponseFinalizeBlock
    prepared: PreparedCommit


class _Superseded(Exception):
    """Another block than the one that is executed ahead was decided."""


class _Ahead:
    """A block that is being executed before its decision."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.dropped = threading.Event()
        self.result: Future[Executed]


class Executor:
    """Executes one block at a time over a store, which it never writes."""

    def __init__(self, store: Store, known: KnownTransactions, *, works_ahead: bool) -> None:
        self._store = store
        self._known = known
        self._works_ahead = works_ahead
        self._verifiers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="verify")
        self._one_ahead = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._ahead: _Ahead | None = None

    def close(self) -> None:
        """Stop what goes on. To be called before the store is closed."""
        self.drop_ahead()
        self._one_ahead.shutdown()
        self._verifiers.shutdown()

    def begin_ahead(self, start: Start, block: Block) -> None:
        """`block` was proposed and may be decided: begin with it in another thread, if this node works ahead."""
        if not self._works_ahead or (self._ahead is not None and self._ahead.block == block):
            return
        self.drop_ahead()
        ahead = self._ahead = _Ahead(block)
        ahead.result = self._one_ahead.submit(self._execute, start, block, ahead.dropped)

    def drop_ahead(self) -> None:
        """Let go of what was begun, and wait until it has stopped."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        ahead.dropped.set()
        error = ahead.result.exception()
        if error is not None and not isinstance(error, _Superseded):
            _log.error("a proposed block could not be executed", height=ahead.block.height, exc_info=error)

    def execute(self, start: Start, block: Block) -> Executed:
        """What the decided `block` does to the committed state. Writes nothing."""
        ahead = self._ahead
        if ahead is not None and ahead.block == block:
            self._ahead = None
            return ahead.result.result()
        self.drop_ahead()
        return self._execute(start, block, threading.Event())

    def _execute(self, start: Start, block: Block, dropped: threading.Event) -> Executed:
        self._verify(block.txs)
        context = BlockContext(
            chain_id=start.chain_id, height=block.height, time_s=block.time_s, last_block_hash=block.hash
        )
        branch = Branch(start.genesis or self._store.committed)
        begin_events = execution.begin_block(branch, context, block.evidence)
        results = []
        for tx in block.txs:
            if dropped.is_set():
                raise _Superseded
            results.append(_tx_result(execution.execute_transaction(branch, tx, context, known=self._known.find(tx))))
        end = execution.end_block(branch, context)
        writes = {**start.genesis.writes, **branch.writes} if start.genesis else branch.writes
        prepared = self._store.prepare(block.height, writes)
        response = pb.ResponseFinalizeBlock(
            events=_events([*begin_events, *end.events]),
            tx_results=results,
            validator_updates=[
                pb.ValidatorUpdate(pub_key=pb.PublicKey(ed25519=key), power=power)
                for key, power in end.validator_updates
            ],
            app_hash=prepared.app_hash,
        )
        return Executed(response, prepared)

    def _verify(self, txs: Sequence[bytes]) -> None:
        """Verify the signatures that CheckTx has not, side by side: the execution that follows then finds them good.
        Those that are not good are left to it."""
        unknown = [tx for tx in txs if self._known.find(tx) is None]
        if len(unknown) > FEW_SIGNATURES:
            parts = [unknown[i : i + VERIFIED_AT_ONCE] for i in range(0, len(unknown), VERIFIED_AT_ONCE)]
            list(self._verifiers.map(self._verify_some, parts))

    def _verify_some(self, txs: Sequence[bytes]) -> None:
        for tx in txs:
            try:
                self._known.add(verify_transaction(tx))
            except InvalidTransaction:
                continue  # executing it gives the reason


def _evidence(misbehavior: Iterable[pb.Misbehavior]) -> list[Evidence]:
    """Both kinds that CometBFT verifies: a vote for two blocks, and two headers signed to deceive a light client."""
    return [
        Evidence(consensus_address=item.validator.address, height=item.height, power=item.validator.power)
        for item in misbehavior
        if item.type in (pb.DUPLICATE_VOTE, pb.LIGHT_CLIENT_ATTACK)
    ]


def _tx_result(receipt: Receipt) -> pb.ExecTxResult:
    return pb.ExecTxResult(
        code=receipt.code,
        data=receipt.data,
        log=receipt.log,
        gas_wanted=receipt.work_wanted,
        gas_used=receipt.work_used,
        events=_events(receipt.events),
        codespace="" if receipt.code == 0 else CODESPACE,
    )


def _events(events: Sequence[Event]) -> list[pb.Event]:
    return [
        pb.Event(
            type=event.kind,
            attributes=[
                pb.EventAttribute(key=key, value=value, index=True) for key, value in sorted(event.attributes.items())
            ],
        )
        for event in events
    ]
