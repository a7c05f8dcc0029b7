"""Blocks as an adversary makes them, and nodes in different conditions that get them: for test_hostile_blocks."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from abci_app import messages as m
from abci_app.application import Application
from abci_app.ledger import account_of
from abci_app.params import STAKE_PER_POWER, Params
from abci_app.rules.validators import consensus_address
from abci_app.server import abci_pb2 as pb
from abci_app.state import ReadableState
from abci_app.store import Store
from abci_app.transactions import MAX_TX_BYTES, Transaction, TxBody, body_digest
from abci_app.work import total_work
from primitives.encoding import decode, encode
from primitives.hashing import sha256
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, address, key, make_genesis, possession, public, service
from tests.abci_app.rules.rounds_kit import GENESIS_ROOT, job_terms

MAX_BLOCK_BYTES: Final = 40_000
MAX_BLOCK_WORK: Final = 30_000
SENDERS: Final = ("alice", "bob", "v0", "v1", "v2", "v3", "w0")
QUICK_JOB: Final = job_terms(min_workers=1, train_blocks=1, commit_blocks=1, reveal_blocks=1)
GENESIS: Final = make_genesis(Params(max_block_work=MAX_BLOCK_WORK, unbonding_blocks=4), stakes=(100, 80, 60, 20))

MESSAGES: Final[tuple[Callable[[str], tuple[m.Message, ...]], ...]] = (
    lambda who: (m.Transfer(to=address("bob"), amount=7),),
    lambda who: (m.Transfer(to=address("alice"), amount=TOKEN),) * 30,
    lambda who: (m.Transfer(to=address("alice"), amount=2**63 - 1),),
    lambda who: (m.Bond(amount=3 * TOKEN),),
    lambda who: (m.Unbond(amount=TOKEN),),
    lambda who: (m.Unbond(amount=20 * TOKEN), m.Transfer(to=address("bob"), amount=1)),
    lambda who: (m.RegisterValidator(public(who), possession(who), 10 * TOKEN),),
    lambda who: (service(f"{who} moved", operator=who),),
    lambda who: (m.RegisterWorker(bond=10 * TOKEN), m.JoinJob(job_id=1, genesis_root=GENESIS_ROOT)),
    lambda who: (m.CreateJob(key=sha256(who.encode()), terms=QUICK_JOB),),
    lambda who: (m.CreateDeal(sha256(who.encode()), sha256(b"file"), 5000, "hot", 2, 3, "s"),),
    lambda who: (m.Transfer(to=address("bob"), amount=0),),
    lambda who: (m.JoinJob(job_id=99, genesis_root=bytes(5)),),
)
"""Sensible ones, ones that the state refuses, and ones out of form."""


@dataclass
class Writer:
    """Writes transactions of one block, with the nonces that its earlier ones leave."""

    state: ReadableState
    used: Counter[str] = field(default_factory=Counter)

    def good(self, who: str, messages: tuple[m.Message, ...], *, ahead: int = 0, chain_id: str = CHAIN_ID) -> bytes:
        """In form and signed; counts its nonce unless it is `ahead` of the right one."""
        nonce = account_of(self.state, address(who)).nonce + self.used[who] + ahead
        self.used[who] += not ahead
        body = encode(TxBody(chain_id, nonce, total_work(messages), 0, messages))
        signature = key(who).sign(body_digest(body))
        return encode(Transaction(body=body, public_key=key(who).public_key, signature=signature))

    def out_of_order(self, who: str, messages: tuple[m.Message, ...]) -> list[bytes]:
        """Two of one sender, the second one first."""
        first = self.good(who, messages)
        return [self.good(who, messages), first]

    def write(self, kind: str, who: str, messages: tuple[m.Message, ...], noise: bytes) -> list[bytes]:
        """The transactions of one recipe; see KINDS."""
        if kind == "good":
            return [self.good(who, messages)]
        if kind == "out of order":
            return self.out_of_order(who, messages)
        if kind == "gap":
            return [self.good(who, messages, ahead=3)]
        if kind == "other chain":
            return [self.good(who, messages, chain_id="other", ahead=1)]
        if kind == "twice":
            return [self.good(who, messages)] * 2
        if kind == "bad signature":
            return [_forge(self.good(who, messages, ahead=1), bytes(64))]
        if kind == "signed by another":
            tx = self.good(who, messages)
            self.used[who] -= 1
            return [_forge(tx, key("w1").sign(body_digest(decode(tx, Transaction).body)))]
        if kind == "longer":
            return [self.good(who, messages, ahead=1) + noise[:1]]
        if kind == "oversized":
            return [noise[:1] * (MAX_TX_BYTES + 1)]
        return [noise]


KINDS: Final = (
    *("good", "good", "good", "out of order", "gap", "other chain", "twice", "bad signature", "signed by another"),
    *("longer", "oversized", "noise"),
)


def _forge(tx: bytes, signature: bytes) -> bytes:
    return encode(replace(decode(tx, Transaction), signature=signature))


@dataclass
class Node:
    """One application on its own database."""

    folder: Path
    works_ahead: bool = False

    def __post_init__(self) -> None:
        self.store = Store(self.folder)
        self.application = Application(self.store, works_ahead=self.works_ahead)

    def start_chain(self) -> bytes:
        """InitChain; returns the app hash."""
        powers = [(bytes.fromhex(v.consensus_key), v.bond // STAKE_PER_POWER) for v in GENESIS.validators]
        request = pb.RequestInitChain(
            chain_id=CHAIN_ID,
            consensus_params=pb.ConsensusParams(block=pb.BlockParams(max_bytes=MAX_BLOCK_BYTES, max_gas=-1)),
            validators=[pb.ValidatorUpdate(pub_key=pb.PublicKey(ed25519=k), power=power) for k, power in powers],
            app_state_bytes=msgspec.json.encode(GENESIS),
            initial_height=1,
        )
        return self.application.init_chain(request).app_hash

    def restart(self) -> None:
        """What was not committed is lost, and all that the mempool knew. Before the first commit the chain starts anew,
        as CometBFT has it."""
        self.close()
        self.__post_init__()
        if self.height == 0:
            self.start_chain()

    @property
    def height(self) -> int:
        return self.store.committed.height

    def close(self) -> None:
        self.application.close()
        self.store.close()

    def check(self, tx: bytes, *, again: bool = False) -> int:
        kind = pb.RECHECK if again else pb.NEW
        return self.application.check_tx(pb.RequestCheckTx(tx=tx, type=kind)).code

    def accepts(self, request: pb.RequestFinalizeBlock) -> bool:
        """ProcessProposal of the block that is in `request`."""
        proposal = pb.RequestProcessProposal(
            txs=request.txs, height=request.height, hash=request.hash, misbehavior=request.misbehavior
        )
        proposal.time.CopyFrom(request.time)
        status = self.application.process_proposal(proposal).status
        assert status in (pb.ResponseProcessProposal.ACCEPT, pb.ResponseProcessProposal.REJECT)
        return status == pb.ResponseProcessProposal.ACCEPT

    def prepare(self, request: pb.RequestFinalizeBlock, max_tx_bytes: int) -> list[bytes]:
        proposal = pb.RequestPrepareProposal(
            txs=request.txs, max_tx_bytes=max_tx_bytes, height=request.height, misbehavior=request.misbehavior
        )
        return list(self.application.prepare_proposal(proposal).txs)

    def finalize(self, request: pb.RequestFinalizeBlock) -> pb.ResponseFinalizeBlock:
        return self.application.finalize_block(request)

    def commit(self) -> None:
        self.application.commit(pb.RequestCommit())

    def delete(self) -> None:
        self.close()
        shutil.rmtree(self.folder)


def block_of(height: int, txs: Sequence[bytes], offenders: Sequence[tuple[str, int]] = ()) -> pb.RequestFinalizeBlock:
    """A block with evidence against the validators of these names, for these heights."""
    request = pb.RequestFinalizeBlock(txs=txs, hash=sha256(b"block %d" % height), height=height)
    request.time.seconds = 1_700_000_000 + height
    for name, at in offenders:
        item = request.misbehavior.add()
        item.type = pb.DUPLICATE_VOTE
        item.validator.address = consensus_address(public(name))
        item.validator.power = 100
        item.height = at
    return request


def outcome(response: pb.ResponseFinalizeBlock) -> tuple[object, ...]:
    """What all nodes must agree on; the texts of logs and the events are not among it."""
    return (
        [(result.code, result.data, result.gas_wanted, result.gas_used) for result in response.tx_results],
        [(update.pub_key.ed25519, update.power) for update in response.validator_updates],
        response.app_hash,
    )
