"""A chain in memory for tests of the rules: named accounts, blocks by function call, conservation checked each time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext, EndOfBlock, Event, Evidence, Receipt
from abci_app.execution import begin_block, end_block, execute_transaction, init_genesis
from abci_app.ledger import account_of, conservation_gap, counters_of, params_of
from abci_app.params import Genesis, GenesisAccount, GenesisValidator, Params, parse_genesis
from abci_app.records import Job, Member, Round, Settlement, Submission, Validator, Worker
from abci_app.rules.validators import consensus_address
from abci_app.state import Branch, MemoryState
from abci_app.transactions import TxBody, possession_digest, service_possession_digest, sign_transaction
from abci_app.work import minimum_fee
from primitives.blobs import ServiceSet
from primitives.hashing import sha256
from primitives.keys import PrivateKey, format_address

CHAIN_ID = "test-chain"
TOKEN = 1_000_000
START_BALANCE = 10_000 * TOKEN
VALIDATORS = ("v0", "v1", "v2", "v3")
PEOPLE = ("alice", "bob", "w0", "w1", "w2", "w3", "w4")
_keys: dict[str, PrivateKey] = {}


def key(name: str) -> PrivateKey:
    """The account key of `name`; ``service:v0`` is the service key of v0."""
    if name not in _keys:
        _keys[name] = PrivateKey.from_seed(name)
    return _keys[name]


def address(name: str) -> bytes:
    return key(name).address


def consensus_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()))


def public(name: str) -> bytes:
    """Ed25519 consensus key of `name`, 32 bytes."""
    return consensus_key(name).public_key().public_bytes_raw()


def possession(name: str, *, chain_id: str = CHAIN_ID, operator: str = "") -> bytes:
    return consensus_key(name).sign(possession_digest(chain_id, address(operator or name)))


def service(
    name: str, *, operator: str = "", url: str = "http://10.0.0.1:26602", chain_id: str = CHAIN_ID
) -> m.RegisterService:
    """Registers ``service:name`` for `operator` (by default `name`), proof included."""
    service_key = key(f"service:{name}")
    proof = service_key.sign(service_possession_digest(chain_id, address(operator or name)))
    return m.RegisterService(service_key=service_key.public_key, possession_proof=proof, url=url)


def make_genesis(params: Params | None = None, *, stakes: Sequence[int] = (100, 100, 100, 100)) -> Genesis:
    """Validators v0, v1, … with these stakes (tokens), services registered; everybody in PEOPLE has money."""
    names = [f"v{i}" for i in range(len(stakes))]
    genesis = Genesis(
        accounts=tuple(GenesisAccount(format_address(address(name)), START_BALANCE) for name in (*PEOPLE, *names)),
        validators=tuple(
            GenesisValidator(
                operator=format_address(address(name)),
                consensus_key=public(name).hex(),
                bond=stake * TOKEN,
                service_key=key(f"service:{name}").public_key.hex(),
                url=f"http://127.0.0.1:{26602 + 10 * i}",
            )
            for i, (name, stake) in enumerate(zip(names, stakes, strict=True))
        ),
        params=params or Params(),
    )
    return parse_genesis(msgspec.json.encode(genesis))


@dataclass
class Chain:
    """State after the last block, and how to make the next one."""

    genesis: Genesis = field(default_factory=make_genesis)
    state: MemoryState = field(default_factory=MemoryState)
    height: int = 0
    end: EndOfBlock = field(default_factory=EndOfBlock)
    """Of the last block."""
    events: list[Event] = field(default_factory=list)
    """Of the last block."""

    def __post_init__(self) -> None:
        branch = Branch(self.state)
        init_genesis(branch, self.genesis)
        self.state.apply(branch)

    def context(self, height: int | None = None) -> BlockContext:
        at = self.height + 1 if height is None else height
        return BlockContext(chain_id=CHAIN_ID, height=at, time_s=1_700_000_000 + at, last_block_hash=sha256(b"%d" % at))

    def block(self, *txs: bytes, evidence: Sequence[Evidence] = ()) -> list[Receipt]:
        """Execute and commit one block; checks that no money came or went."""
        context = self.context()
        branch = Branch(self.state)
        events = begin_block(branch, context, evidence)
        receipts = [execute_transaction(branch, tx, context) for tx in txs]
        self.end = end_block(branch, context)
        for receipt in receipts:
            events.extend(receipt.events)
        self.events = [*events, *self.end.events]
        self.state.apply(branch)
        self.height += 1
        assert conservation_gap(self.state) == 0
        return receipts

    def skip_to(self, height: int) -> None:
        """Empty blocks until `height` is the last one."""
        while self.height < height:
            self.block()

    def tx(self, sender: str, *messages: m.Message, nonce_ahead: int = 0, fee: int | None = None) -> bytes:
        """A signed transaction with the sender's next nonce and the least fee."""
        body = TxBody(
            chain_id=CHAIN_ID,
            nonce=account_of(self.state, address(sender)).nonce + nonce_ahead,
            fee=minimum_fee(messages, self.params) if fee is None else fee,
            valid_until_height=0,
            messages=messages,
        )
        return sign_transaction(body, key(sender))

    def send(self, sender: str, *messages: m.Message) -> Receipt:
        """One block with one transaction."""
        return self.block(self.tx(sender, *messages))[0]

    def ok(self, sender: str, *messages: m.Message) -> Receipt:
        """`send` that must succeed."""
        receipt = self.send(sender, *messages)
        assert receipt.code == 0, receipt.log
        return receipt

    def refused(self, sender: str, *messages: m.Message) -> int:
        """`send` that must be refused and leave nothing behind but fee and nonce; its code."""
        before = dict(self.state.items)
        context = self.context()
        branch = Branch(self.state)
        receipt = execute_transaction(branch, self.tx(sender, *messages), context)
        assert receipt.code != 0, "accepted"
        assert receipt.data == b""
        assert receipt.events == ()
        allowed = {tables.ACCOUNTS.key(address(sender)), tables.COUNTERS.key()}
        changed = {k for k, v in branch.writes.items() if before.get(k) != v}
        assert changed <= allowed, "a refused transaction left a trace"
        account = account_of(self.state, address(sender))
        after = account_of(branch, address(sender))
        fee = minimum_fee(messages, self.params)
        assert (after.balance, after.nonce) == (account.balance - fee, account.nonce + 1)
        return receipt.code

    # --- looking ----------------------------------------------------------------------------------------------
    @property
    def params(self) -> Params:
        return params_of(self.state)

    def balance(self, name: str) -> int:
        return account_of(self.state, address(name)).balance

    def validator(self, name: str) -> Validator:
        record = tables.VALIDATORS.get(self.state, address(name))
        assert record is not None
        return record

    def worker(self, name: str) -> Worker:
        record = tables.WORKERS.get(self.state, address(name))
        assert record is not None
        return record

    def job(self, job_id: int = 1) -> Job:
        record = tables.JOBS.get(self.state, job_id)
        assert record is not None
        return record

    def round(self, index: int, job_id: int = 1) -> Round:
        record = tables.ROUNDS.get(self.state, job_id, index)
        assert record is not None
        return record

    def member(self, name: str, job_id: int = 1) -> Member:
        record = tables.MEMBERS.get(self.state, job_id, address(name))
        assert record is not None
        return record

    def submission(self, name: str, index: int, job_id: int = 1) -> Submission:
        record = tables.SUBMISSIONS.get(self.state, job_id, index, address(name))
        assert record is not None
        return record

    def settlement(self, index: int, job_id: int = 1) -> Settlement | None:
        return tables.SETTLEMENTS.get(self.state, job_id, index)

    def service_set(self) -> ServiceSet:
        record = tables.SERVICE_SETS.get(self.state, counters_of(self.state).set_version)
        assert record is not None
        return record

    @property
    def burned(self) -> int:
        return counters_of(self.state).burned


def double_sign(name: str, *, height: int = 1) -> Evidence:
    return Evidence(consensus_address=consensus_address(public(name)), height=height, power=100)
