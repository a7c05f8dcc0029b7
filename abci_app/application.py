"""The chain's application as CometBFT drives it: one method per ABCI 2.0 call, over `execution` and `store`.

FinalizeBlock works in memory and may run again; Commit alone writes. CheckTx and Query read the last committed state.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import structlog

from abci_app import execution
from abci_app.block import Receipt
from abci_app.blocks import CODESPACE, Block, Executor, Start
from abci_app.chain import CHAIN, Chain
from abci_app.errors import CODE_OK
from abci_app.execution import Unverified
from abci_app.failpoints import reach
from abci_app.known import KnownTransactions
from abci_app.params import STAKE_PER_POWER, Genesis, GenesisError, parse_genesis
from abci_app.proposals import choose_transactions, find_fault
from abci_app.queries import answer_query
from abci_app.server import abci_pb2 as pb
from abci_app.snapshots.restoring import Restorer
from abci_app.snapshots.taking import Snapshots
from abci_app.state import Branch, MemoryState, ReadableState
from abci_app.store import PreparedCommit, Store
from abci_app.waiting import WaitingNonces
from primitives.keys import verify_record

APP_NAME: Final = "outerstep"
APP_VERSION: Final = 1
"""Version of the rules; all nodes of a chain run the same."""
MAX_BLOCK_BYTES: Final = 100 * 1024 * 1024
"""CometBFT's own limit, which stands where the genesis says -1."""
NOT_STARTED_CODE: Final = 1

_log = structlog.get_logger()


class CallOrderError(RuntimeError):
    """CometBFT called what cannot come at this point. A bug on one of the two sides; nothing was written."""


class Application:
    """One chain on one store. See `abci_app.server.dispatch.AbciApplication` for which calls may run side by side."""

    def __init__(self, store: Store, snapshots: Snapshots | None = None, *, works_ahead: bool = False) -> None:
        """`snapshots` None: none are taken or served. `works_ahead`: proposed blocks are executed before they are
        decided; then `close` must be called before the store is closed.

        Raises: OSError when what an earlier restore left cannot be removed.
        """
        self._store = store
        self._snapshots = snapshots
        self._restorer = Restorer(store, self._begin_anew)
        self._known = KnownTransactions()
        self._executor = Executor(store, self._known, works_ahead=works_ahead)
        self._waiting = WaitingNonces()
        self._genesis: Branch | None = None
        """The state that InitChain made, until the first commit has written it."""
        self._initial_height = 1
        self._prepared: PreparedCommit | None = None
        self._chain = CHAIN.get(store.committed)
        """None until InitChain or a restored snapshot."""

    def close(self) -> None:
        """Stop what goes on beside the calls. To be called before the store is closed."""
        self._executor.close()
        if self._snapshots is not None:
            self._snapshots.close()
        self._restorer.close()

    # --- query and mempool connections --------------------------------------------------------------------------
    def info(self, request: pb.RequestInfo) -> pb.ResponseInfo:
        """Where the application stands: the last committed height, which CometBFT replays from."""
        committed = self._store.committed
        return pb.ResponseInfo(
            data=APP_NAME,
            version=str(APP_VERSION),
            app_version=APP_VERSION,
            last_block_height=committed.height,
            last_block_app_hash=committed.app_hash,
        )

    def query(self, request: pb.RequestQuery) -> pb.ResponseQuery:
        return answer_query(self._store, request)

    def check_tx(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx:
        """Whether a transaction may wait in the mempool. RECHECK, after each block, skips the signature."""
        found = self.begin_check(request)
        return self.end_check(found, good=verify_record(found.record)) if isinstance(found, Unverified) else found

    def begin_check(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx | Unverified:
        """CheckTx up to the signature, for whoever verifies many at once somewhere else."""
        chain = self._chain
        if chain is None:
            return pb.ResponseCheckTx(code=NOT_STARTED_CODE, log="the chain has not started", codespace=CODESPACE)
        found = execution.begin_check(
            self._state(),
            request.tx,
            chain_id=chain.chain_id,
            height=self._next_height(),
            recheck=request.type == pb.RECHECK,
            waiting=self._waiting,
            known=self._known,
        )
        return found if isinstance(found, Unverified) else _check_response(found)

    def end_check(self, unverified: Unverified, *, good: bool) -> pb.ResponseCheckTx:
        """The answer once the signature is known to be `good` or not."""
        return _check_response(execution.end_check(unverified, good=good, waiting=self._waiting, known=self._known))

    # --- consensus connection -----------------------------------------------------------------------------------
    def init_chain(self, request: pb.RequestInitChain) -> pb.ResponseInitChain:
        """Make the first state in memory; it is written with the first block. May come again after a crash before that.

        Raises: GenesisError when the genesis file breaks a rule or names other validators than CometBFT's.
        """
        if self._store.committed.height:
            raise CallOrderError(
                f"CometBFT starts the chain anew, but the application's data stands at height "
                f"{self._store.committed.height}: reset both or neither"
            )
        reach("init_chain.begin")
        genesis = parse_genesis(request.app_state_bytes)
        _check_validators(genesis, request.validators)
        max_bytes = request.consensus_params.block.max_bytes
        chain = Chain(request.chain_id, max_bytes if max_bytes > 0 else MAX_BLOCK_BYTES)
        branch = Branch(MemoryState())
        CHAIN.put(branch, chain)
        execution.init_genesis(branch, genesis)
        self._genesis, self._chain, self._prepared = branch, chain, None
        self._initial_height = max(1, request.initial_height)
        app_hash = self._store.prepare(self._initial_height, branch.writes).app_hash
        _log.info("genesis", chain_id=chain.chain_id, validators=len(genesis.validators), app_hash=app_hash.hex())
        reach("init_chain.end")
        return pb.ResponseInitChain(app_hash=app_hash)

    def prepare_proposal(self, request: pb.RequestPrepareProposal) -> pb.ResponsePrepareProposal:
        txs = choose_transactions(
            self._state(),
            request.txs,
            self._known,
            max_tx_bytes=request.max_tx_bytes,
            chain_id=self._started().chain_id,
            height=request.height,
        )
        return pb.ResponsePrepareProposal(txs=txs)

    def process_proposal(self, request: pb.RequestProcessProposal) -> pb.ResponseProcessProposal:
        limit = self._started().max_block_bytes
        fault = find_fault(self._state(), request.txs, self._known, max_block_bytes=limit)
        if fault is None:
            self._executor.begin_ahead(self._start(), Block.of(request))
            return pb.ResponseProcessProposal(status=pb.ResponseProcessProposal.ACCEPT)
        _log.warning("proposal rejected", height=request.height, reason=fault, proposer=request.proposer_address.hex())
        return pb.ResponseProcessProposal(status=pb.ResponseProcessProposal.REJECT)

    def extend_vote(self, request: pb.RequestExtendVote) -> pb.ResponseExtendVote:
        """Vote extensions are not used."""
        return pb.ResponseExtendVote()

    def verify_vote_extension(self, request: pb.RequestVerifyVoteExtension) -> pb.ResponseVerifyVoteExtension:
        statuses = pb.ResponseVerifyVoteExtension
        return statuses(status=statuses.REJECT if request.vote_extension else statuses.ACCEPT)

    def finalize_block(self, request: pb.RequestFinalizeBlock) -> pb.ResponseFinalizeBlock:
        """Execute a decided block in memory: one result for each transaction, and the next app hash.

        Raises: CallOrderError when the block does not follow the committed height.
        """
        if request.height != self._next_height():
            raise CallOrderError(f"block {request.height} was decided; the application needs {self._next_height()}")
        reach("finalize_block.begin")
        executed = self._executor.execute(self._start(), Block.of(request))
        reach("finalize_block.executed")
        self._prepared = executed.prepared
        reach("finalize_block.end")
        return executed.response

    def commit(self, request: pb.RequestCommit) -> pb.ResponseCommit:
        """Write the finalized block. Keeps all blocks in CometBFT (retain_height 0), so that others can replay."""
        if self._prepared is None:
            raise CallOrderError("Commit without a finalized block")
        reach("commit.begin")
        self._store.commit(self._prepared)
        reach("commit.written")
        self._prepared = self._genesis = None
        self._waiting.next_block()
        if self._snapshots is not None:
            self._snapshots.after_commit(self._store.committed)
        reach("commit.end")
        return pb.ResponseCommit(retain_height=0)

    # --- snapshot connection ------------------------------------------------------------------------------------
    def list_snapshots(self, request: pb.RequestListSnapshots) -> pb.ResponseListSnapshots:
        return pb.ResponseListSnapshots(snapshots=self._snapshots.offers() if self._snapshots else [])

    def load_snapshot_chunk(self, request: pb.RequestLoadSnapshotChunk) -> pb.ResponseLoadSnapshotChunk:
        """An empty chunk means that there is none such."""
        if self._snapshots is None:
            return pb.ResponseLoadSnapshotChunk()
        chunk = self._snapshots.load_chunk(request.height, request.format, request.chunk)
        return pb.ResponseLoadSnapshotChunk(chunk=chunk)

    def offer_snapshot(self, request: pb.RequestOfferSnapshot) -> pb.ResponseOfferSnapshot:
        return self._restorer.offer(request)

    def apply_snapshot_chunk(self, request: pb.RequestApplySnapshotChunk) -> pb.ResponseApplySnapshotChunk:
        return self._restorer.apply(request)

    def _begin_anew(self) -> None:
        """The store holds a restored state."""
        self._executor.drop_ahead()
        self._genesis = self._prepared = None
        self._chain = CHAIN.get(self._store.committed)

    # --- steps --------------------------------------------------------------------------------------------------
    def _state(self) -> ReadableState:
        """The committed state, or before the first commit what InitChain made."""
        return self._genesis or self._store.committed

    def _start(self) -> Start:
        return Start(self._started().chain_id, self._genesis)

    def _next_height(self) -> int:
        height = self._store.committed.height
        return height + 1 if height else self._initial_height

    def _started(self) -> Chain:
        if self._chain is None:
            raise CallOrderError("a block came before InitChain")
        return self._chain


def _check_response(receipt: Receipt) -> pb.ResponseCheckTx:
    if receipt.code == CODE_OK:
        return _accepted(receipt.work_wanted)
    return pb.ResponseCheckTx(code=receipt.code, log=receipt.log, gas_wanted=receipt.work_wanted, codespace=CODESPACE)


@lru_cache(maxsize=256)
def _accepted(work: int) -> pb.ResponseCheckTx:
    """The same object each time; not to be changed."""
    return pb.ResponseCheckTx(gas_wanted=work)


def _check_validators(genesis: Genesis, known: Iterable[pb.ValidatorUpdate]) -> None:
    """Raises: GenesisError when CometBFT starts with other validators or powers than the bonds say."""
    theirs = {validator.pub_key.ed25519.hex(): validator.power for validator in known}
    ours = {validator.consensus_key.lower(): validator.bond // STAKE_PER_POWER for validator in genesis.validators}
    if theirs != ours:
        raise GenesisError(
            f"genesis.json names validators {theirs} (key: power), app_state has bonds for {ours}; "
            f"they should be equal, with power = bond // {STAKE_PER_POWER}"
        )
