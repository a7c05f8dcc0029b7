"""A small chain for tests: keys, genesis, transfers, blocks, and the application as a process."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from abci_app import messages as m
from abci_app.application import Application
from abci_app.block import Receipt
from abci_app.execution import Unverified, begin_check, end_check
from abci_app.params import STAKE_PER_POWER
from abci_app.server import abci_pb2 as pb
from abci_app.state import ReadableState
from abci_app.transactions import TxBody, sign_transaction
from abci_app.work import total_work
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import PrivateKey, format_address, verify_record

CHAIN_ID = "test-chain"
ALICE = PrivateKey.from_seed("alice")
BOB = PrivateKey.from_seed("bob")
OPERATOR = PrivateKey.from_seed("operator")
CONSENSUS_KEY = bytes(range(32))
POWER = 100
RICH = 1_000_000 * MICRO_PER_TOKEN
MAX_BLOCK_BYTES = 1 << 20


def operator_of(index: int) -> PrivateKey:
    """Account key of the validator with this index."""
    return PrivateKey.from_seed(f"operator{index}") if index else OPERATOR


def genesis(*consensus_keys: bytes, **params: int) -> bytes:
    """`app_state` with a validator for each key (by default one), and plenty for Alice and Bob."""
    document = {
        "accounts": [{"address": format_address(key.address), "balance": RICH} for key in (ALICE, BOB)],
        "validators": [
            {
                "operator": format_address(operator_of(index).address),
                "consensus_key": consensus_key.hex(),
                "bond": POWER * STAKE_PER_POWER,
            }
            for index, consensus_key in enumerate(consensus_keys or (CONSENSUS_KEY,))
        ],
        "params": params,
    }
    return json.dumps(document).encode()


def init_chain(app_state: bytes | None = None, *, power: int = POWER) -> pb.RequestInitChain:
    return pb.RequestInitChain(
        chain_id=CHAIN_ID,
        consensus_params=pb.ConsensusParams(block=pb.BlockParams(max_bytes=MAX_BLOCK_BYTES, max_gas=-1)),
        validators=[pb.ValidatorUpdate(pub_key=pb.PublicKey(ed25519=CONSENSUS_KEY), power=power)],
        app_state_bytes=genesis() if app_state is None else app_state,
        initial_height=1,
    )


def transfer(
    nonce: int,
    *,
    sender: PrivateKey = ALICE,
    to: PrivateKey = BOB,
    amount: int = 5,
    chain_id: str = CHAIN_ID,
    num_messages: int = 1,
    valid_until_height: int = 0,
) -> bytes:
    """A signed transfer that pays just its fee."""
    messages = (m.Transfer(to=to.address, amount=amount),) * num_messages
    body = TxBody(chain_id, nonce, total_work(messages), valid_until_height, messages)
    return sign_transaction(body, sender)


def signed(sender: PrivateKey, nonce: int, *messages: m.Message) -> bytes:
    """A transaction of this chain that pays just its fee."""
    return sign_transaction(TxBody(CHAIN_ID, nonce, total_work(messages), 0, messages), sender)


def check_transaction(state: ReadableState, tx: bytes, *, chain_id: str, height: int, recheck: bool) -> Receipt:
    """What CheckTx says of a transaction whose signature is verified at once."""
    found = begin_check(state, tx, chain_id=chain_id, height=height, recheck=recheck)
    return end_check(found, good=verify_record(found.record)) if isinstance(found, Unverified) else found


def block(height: int, txs: Sequence[bytes] = ()) -> pb.RequestFinalizeBlock:
    request = pb.RequestFinalizeBlock(txs=txs, hash=height.to_bytes(32, "big"), height=height)
    request.time.seconds = 1_700_000_000 + height
    return request


def run_block(application: Application, height: int, txs: Sequence[bytes] = ()) -> pb.ResponseFinalizeBlock:
    """Finalize and commit."""
    response = application.finalize_block(block(height, txs))
    application.commit(pb.RequestCommit())
    return response


@dataclass
class AppProcess:
    """``python -m abci_app`` (or another module of its kind) as a real process."""

    home: Path
    arguments: tuple[str, ...] = ()
    module: str = "abci_app"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set besides those of the tests, or otherwise."""
    process: asyncio.subprocess.Process = field(init=False)
    ready_line: str = ""

    @property
    def socket(self) -> Path:
        return self.home / "abci.sock"

    @property
    def data(self) -> Path:
        return self.home / "app"

    async def start(self) -> "AppProcess":
        """Start and wait for the line that says it is ready; empty when it ended instead."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module, "--socket", str(self.socket), "--data", str(self.data)),
            *("--log-level", "warning", *self.arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self.environment},
        )
        assert self.process.stdout is not None
        self.ready_line = (await self.process.stdout.readline()).decode()
        return self

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def terminate(self) -> tuple[int, str]:
        """SIGTERM; returns the exit status and what stood on stderr."""
        if self.process.returncode is None:
            self.process.terminate()
        return await self.ended()

    async def ended(self) -> tuple[int, str]:
        """Wait for the end; returns the exit status and what stood on stderr."""
        _, errors = await asyncio.wait_for(self.process.communicate(), 20)
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()
