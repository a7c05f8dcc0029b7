"""Two real applications on two real databases with the same committed state, in which much is going on."""

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from abci_app import messages as m
from abci_app.application import Application
from abci_app.chain import CHAIN, Chain
from abci_app.ledger import account_of
from abci_app.rules.validators import consensus_address
from abci_app.server import abci_pb2 as pb
from abci_app.state import Branch, MemoryState
from abci_app.store import Store
from abci_app.tables import DEALS
from abci_app.transactions import Transaction, body_digest
from primitives.deals import receipt_digest
from primitives.encoding import EncodingError, encode
from primitives.hashing import sha256
from tests.abci_app.rules.chain import CHAIN_ID, VALIDATORS, address, consensus_key, key
from tests.abci_app.rules.chain import Chain as ChainInMemory
from tests.abci_app.rules.rounds_kit import at_aggregate, attest
from tests.fuzz.reader import Reader

MAX_BLOCK_BYTES: Final = 1 << 20
SENDERS: Final = ("alice", "w0", "w1", "v0", "nobody")
MAX_TXS: Final = 6
_TIME_S: Final = 1_700_000_000


class Instance:
    """One application, and the state that it has committed."""

    def __init__(self, folder: Path, chain: ChainInMemory) -> None:
        self.store = Store(folder)
        self.committed = MemoryState(chain.state.items)
        branch = Branch(self.committed)
        CHAIN.put(branch, Chain(CHAIN_ID, MAX_BLOCK_BYTES))
        self.committed.apply(branch)
        self.store.commit(self.store.prepare(chain.height, dict(self.committed.items)))
        self.application = Application(self.store)


def busy_chain() -> ChainInMemory:
    """A round waits for attestations, one deal is active, and one waits for its receipts."""
    chain = at_aggregate("w0", "w1")
    for deal_id in (1, 2):
        deal = m.CreateDeal(
            key=bytes([deal_id]) * 32, root=sha256(b"file"), size=5000, tier="hot", replicas=2, duration=50, series="s"
        )
        assert chain.send("alice", deal).code == 0
    assert chain.send("bob", activation(chain.state, 1)).code == 0
    return chain


def activation(state: MemoryState, deal_id: int) -> m.ActivateDeal:
    """With the receipts of all its providers."""
    deal = DEALS.get(state, deal_id)
    assert deal is not None
    names = {address(name): name for name in VALIDATORS}
    digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
    receipts = tuple((op, key(f"service:{names[op]}").sign(digest)) for op in deal.providers)
    return m.ActivateDeal(deal_id=deal_id, receipts=receipts)


@cache
def good_messages() -> tuple[m.Message, ...]:
    """Messages that take effect in the committed state, when the right one sends them."""
    first, _ = two_instances()
    return (
        m.Transfer(to=address("bob"), amount=5),
        attest(),
        attest(rejected=("w1",)),
        activation(first.committed, 2),
        m.ExtendDeal(deal_id=1, blocks=3),
        m.DeleteDeal(deal_id=1),
        m.Unbond(amount=10**6),
        m.Bond(amount=10**6),
        m.CancelJob(job_id=1),
    )


@cache
def two_instances() -> tuple[Instance, Instance]:
    """Made once in a process: FinalizeBlock without Commit leaves the committed state as it is, input after input."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-")
    chain = busy_chain()
    first, second = (Instance(Path(folder.name, name), chain) for name in ("first", "second"))

    def close() -> None:
        first.store.close()
        second.store.close()
        folder.cleanup()

    atexit.register(close)
    return first, second


def read_txs(reader: Reader, committed: MemoryState) -> list[bytes]:
    """Up to MAX_TXS transactions: raw bytes, signed messages with the right or another nonce, repeats, flipped bits."""
    txs: list[bytes] = []
    used = dict.fromkeys(SENDERS, 0)
    while not reader.exhausted and len(txs) < MAX_TXS:
        kind = reader.byte() % 8
        if kind < 4 or (kind < 6 and not txs):
            sender = reader.choose(SENDERS)
            txs.append(_signed(reader, sender, _nonce(committed, sender) + used[sender] + (kind == 3)))
            used[sender] += kind != 3
        elif kind == 4:
            txs.append(reader.choose(txs))
        elif kind == 5:
            txs.append(_flipped(reader, reader.choose(txs)))
        elif kind == 6:
            txs.append(envelope(reader.take(reader.byte()), reader.choose(SENDERS)))
        else:
            txs.append(reader.take(reader.byte()))
    return txs


def _nonce(committed: MemoryState, sender: str) -> int:
    return account_of(committed, key(sender).address).nonce


def _signed(reader: Reader, sender: str, nonce: int) -> bytes:
    """With a fee that covers the work, or with none."""
    messages = [_message(reader) for _ in range(1 + reader.byte() % 2)]
    try:
        return envelope(encode([CHAIN_ID, nonce, reader.choose((10**6, 10**6, 0)), 0, messages]), sender)
    except EncodingError:  # a number above 64 bits cannot be written at all
        return b""


def _message(reader: Reader) -> m.Message:
    return reader.choose(good_messages()) if reader.byte() % 3 == 2 else reader.message()


def envelope(body: bytes, sender: str) -> bytes:
    """A body, of whatever bytes, with a good signature."""
    who = key(sender)
    return encode(Transaction(body=body, public_key=who.public_key, signature=who.sign(body_digest(body))))


def _flipped(reader: Reader, tx: bytes) -> bytes:
    if not tx:
        return b"\x00"
    at = int.from_bytes(reader.take(2), "big") % len(tx)
    return tx[:at] + bytes([tx[at] ^ (1 + reader.byte() % 255)]) + tx[at + 1 :]


def finalize_request(reader: Reader, height: int, txs: list[bytes]) -> pb.RequestFinalizeBlock:
    """A decided block with these transactions, some with evidence against a validator or somebody unknown."""
    request = pb.RequestFinalizeBlock(txs=txs, hash=bytes(32), height=height)
    request.time.seconds = _TIME_S + height
    for _ in range(reader.byte() % 3):
        public_key = consensus_key(f"v{reader.byte() % 5}").public_key().public_bytes_raw()
        item = request.misbehavior.add()
        item.type = reader.choose((pb.DUPLICATE_VOTE, pb.LIGHT_CLIENT_ATTACK, pb.MisbehaviorType.UNKNOWN))
        item.validator.address = reader.choose((consensus_address(public_key), b"", bytes(20)))
        item.validator.power = reader.number() & (2**62 - 1)
        item.height = reader.number() & (2**62 - 1)
    return request
