"""Where the time of a block goes in the application: microseconds of each ABCI call for each transaction.

    python benchmarks/bench_block.py [--txs 2000] [--blocks 5] [--messages 1] [--accounts 10000] [--profile]

Requests go through the dispatcher as bytes and answers come back as bytes, as on the socket, but in one thread: what is
shown is processor time, and what a node can do at the most. `check_tx` verifies signatures; `cold` are ProcessProposal
and FinalizeBlock of a node that has seen none of the transactions before.
"""

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from abci_app.application import Application
from abci_app.messages import Transfer
from abci_app.params import STAKE_PER_POWER
from abci_app.server import abci_pb2 as pb
from abci_app.server.dispatch import Call, Dispatcher
from abci_app.store import Store
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from primitives.keys import PrivateKey, format_address

CHAIN_ID = "bench"
CONSENSUS_KEY = bytes(range(32))
POWER = 100
BALANCE = 10**12
MAX_BYTES = 2 * 1024 * 1024
STEPS = ("check_tx", "prepare", "process", "finalize", "commit", "recheck", "cold process", "cold finalize")


class Node:
    """One application, called through its dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self._dispatcher = Dispatcher(Application(self.store))

    def call(self, requests: Sequence[bytes]) -> tuple[list[bytes], float]:
        """Framed answers, and the seconds that parsing, answering and serialising took."""
        began = time.perf_counter()
        answers = [self._dispatcher.answer(Call(request)) for request in requests]
        return answers, time.perf_counter() - began


class Payers:
    """Accounts that take turns, each with its next nonce."""

    def __init__(self, count: int) -> None:
        self.keys = [PrivateKey.from_seed(f"payer {number}") for number in range(count)]
        self._nonces = [0] * count
        self._next = 0

    def genesis(self) -> bytes:
        accounts = [{"address": format_address(key.address), "balance": BALANCE} for key in self.keys]
        operator = format_address(self.keys[0].address)
        validator = {"operator": operator, "consensus_key": CONSENSUS_KEY.hex(), "bond": POWER * STAKE_PER_POWER}
        return json.dumps({"accounts": accounts, "validators": [validator], "params": {}}).encode()

    def payment(self, num_messages: int) -> bytes:
        index = self._next
        self._next = (index + 1) % len(self.keys)
        to = self.keys[(index * 7919 + self._nonces[index] + 1) % len(self.keys)]
        messages = (Transfer(to=to.address, amount=5),) * num_messages
        body = TxBody(CHAIN_ID, self._nonces[index], total_work(messages), 0, messages)
        self._nonces[index] += 1
        return sign_transaction(body, self.keys[index])


def request(**value: Any) -> bytes:
    return pb.Request(**value).SerializeToString()


def start(node: Node, payers: Payers) -> None:
    block = pb.BlockParams(max_bytes=MAX_BYTES, max_gas=-1)
    node.call(
        [
            request(
                init_chain=pb.RequestInitChain(
                    chain_id=CHAIN_ID,
                    consensus_params=pb.ConsensusParams(block=block),
                    validators=[pb.ValidatorUpdate(pub_key=pb.PublicKey(ed25519=CONSENSUS_KEY), power=POWER)],
                    app_state_bytes=payers.genesis(),
                    initial_height=1,
                )
            ),
            request(finalize_block=pb.RequestFinalizeBlock(height=1)),
            request(commit=pb.RequestCommit()),
        ]
    )


def one_block(warm: Node, cold: Node, height: int, txs: Sequence[bytes]) -> dict[str, float]:
    """Seconds of each step; both nodes execute the block."""
    checks = [request(check_tx=pb.RequestCheckTx(tx=tx)) for tx in txs]
    rechecks = [request(check_tx=pb.RequestCheckTx(tx=tx, type=pb.RECHECK)) for tx in txs]
    process = [request(process_proposal=pb.RequestProcessProposal(txs=txs, height=height))]
    finalize = [request(finalize_block=pb.RequestFinalizeBlock(txs=txs, height=height))]
    commit = [request(commit=pb.RequestCommit())]
    spent: dict[str, float] = {}
    answers, spent["check_tx"] = warm.call(checks)
    assert len({len(answer) for answer in answers}) == 1, "a transaction was refused"
    _, spent["recheck"] = warm.call(rechecks)
    prepare = [request(prepare_proposal=pb.RequestPrepareProposal(txs=txs, max_tx_bytes=MAX_BYTES, height=height))]
    _, spent["prepare"] = warm.call(prepare)
    _, spent["process"] = warm.call(process)
    answer, spent["finalize"] = warm.call(finalize)
    _, spent["commit"] = warm.call(commit)
    _, spent["cold process"] = cold.call(process)
    again, spent["cold finalize"] = cold.call(finalize)
    cold.call(commit)
    assert again == answer, "two nodes differ"
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--txs", type=int, default=2000, help="in a block")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--messages", type=int, default=1, help="in a transaction")
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--profile", action="store_true", help="print where the time of the blocks goes by function")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    payers = Payers(options.accounts)
    with tempfile.TemporaryDirectory() as folder:
        warm, cold = Node(Path(folder, "warm")), Node(Path(folder, "cold"))
        start(warm, payers)
        start(cold, payers)
        blocks = [[payers.payment(options.messages) for _ in range(options.txs)] for _ in range(options.blocks)]
        print(f"{options.txs} transactions of {len(blocks[0][0])} bytes in a block, {options.messages} messages each")
        profile = cProfile.Profile() if options.profile else None
        if profile:
            profile.enable()
        spent = [one_block(warm, cold, height, txs) for height, txs in enumerate(blocks, start=2)]
        if profile:
            profile.disable()
        for step in STEPS:
            median = statistics.median(times[step] for times in spent)
            print(f"{step:>14}: {median / options.txs * 1e6:7.1f} us per transaction {median * 1e3:8.1f} ms")
        if profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
