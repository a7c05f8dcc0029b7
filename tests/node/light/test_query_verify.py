"""`outerstep query --verify` against honest and lying nodes: the true value, or one clear line and exit code 1."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import Result

from abci_app.proofs import KeyProof
from abci_app.records import Account
from abci_app.tables import ACCOUNTS
from node import proving
from node.light.decoding import read_signed_header
from primitives.encoding import encode
from primitives.hashing import sha256
from primitives.keys import format_address
from tests.node.cli.test_command_line import one_line, outerstep
from tests.node.cli.test_with_a_node import put_deal
from tests.node.conftest import ALICE, Made, Served
from tests.node.light.chain import Signer, block_id, block_id_json, commit_json, make_header, sign, validators_json
from tests.node.light.signed_engine import SignedEngine, make_home, signed_node

ADDRESS = format_address(ALICE.address)
THIEF = Signer("thief", power=1000)


@dataclass
class Node:
    """An honest node, until its engine is told to lie."""

    made: Made
    signer: Signer
    served: Served
    engine: SignedEngine
    folder: Path

    async def query(self, *arguments: str | Path, **environment: str) -> Result:
        """`outerstep query` with trust in genesis, in a thread since the node answers from this one."""
        trust = ("--genesis", self.made.home, "--light-home", self.folder / "light")
        environment = {"OUTERSTEP_NODE": self.served.url, **environment}
        return await asyncio.to_thread(outerstep, "query", *trust, *arguments, **environment)

    async def refused(self, *arguments: str | Path) -> str:
        """What it said."""
        result = await self.query(*arguments or ("--verify", "account", ADDRESS))
        assert (result.exit_code, result.stdout) == (1, "")
        return one_line(result)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(proving, "NEXT_BLOCK_S", 2.0)
    made, signer = make_home(tmp_path / "node")
    async with signed_node(made, signer, tmp_path / "app") as (served, engine):
        yield Node(made, signer, served, engine, tmp_path)


async def test_the_value_comes_with_height_and_power(node: Node) -> None:
    for arguments in (("--verify", "account", ADDRESS), ("account", ADDRESS, "--verify")):
        result = await node.query(*arguments)
        assert result.exit_code == 0, result.stderr
        assert "1,000,000 tokens" in result.stdout
        assert "by 100 of 100 power on test-1" in result.stdout


async def test_json_says_what_was_verified(node: Node) -> None:
    answer = json.loads((await node.query("--verify", "account", ADDRESS, "--json")).stdout)
    assert answer["balance"] == 10**12
    verified = answer["verified"]
    block = node.engine.light_block(verified["height"])
    assert verified["block_hash"] == block_id(block.header).hash.hex()
    assert (verified["signed_power"], verified["total_power"], verified["chain_id"]) == (100, 100, "test-1")


async def test_every_record_that_can_carry_a_proof_is_verified(node: Node) -> None:
    put_deal(node.served, "http://127.0.0.1:9")
    for arguments in (("deal", "1"), ("params",), ("validators",)):
        result = await node.query(*arguments, "--verify", "--json")
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["verified"]["signed_power"] == 100
    assert "there is no job 7 on this chain (verified at height" in await node.refused("job", "7", "--verify")
    assert "carries no proof" in await node.refused("--verify", "status")
    assert "name the round" in await node.refused("--verify", "round", "1")


async def test_trust_is_remembered_and_may_begin_with_a_hash(node: Node) -> None:
    light, environment = ("--light-home", node.folder / "other"), {"OUTERSTEP_NODE": node.served.url}
    account = ("--verify", "account", ADDRESS)

    async def query(*options: str | Path) -> Result:
        return await asyncio.to_thread(outerstep, "query", *light, *options, *account, **environment)

    assert "--genesis FILE" in one_line(await query())
    good = block_id(node.engine.light_block(1).header).hash.hex()
    assert "not the trusted" in one_line(await query("--trust-height", "1", "--trust-hash", sha256(b"").hex()))
    assert (await query("--trust-height", "1", "--trust-hash", good)).exit_code == 0
    assert (await query()).exit_code == 0


# --- lies ---------------------------------------------------------------------------------------------------------
def change_proof(change: Callable[[KeyProof], KeyProof]) -> Callable[[Any], Any]:
    def lie(answer: Any) -> Any:
        for operator in answer["response"]["proofOps"]["ops"]:
            proof = change(KeyProof.from_bytes(base64.b64decode(operator["data"])))
            operator["data"] = base64.b64encode(proof.to_bytes()).decode()
        return answer

    return lie


RICH = encode(Account(balance=10**15))


def with_other_bucket(proof: KeyProof) -> KeyProof:
    assert proof.value is not None
    return replace(proof, value=RICH, bucket=proof.bucket.replace(sha256(proof.value), sha256(RICH)))


def in_header(change: Callable[[dict[str, Any]], None], *, and_its_hash: bool = False) -> Callable[[Any], Any]:
    """A lie about a header, and where asked for a commit that names its new hash."""

    def lie(answer: Any) -> Any:
        change(answer["signed_header"]["header"])
        if and_its_hash:
            header, _ = read_signed_header(answer)
            answer["signed_header"]["commit"]["block_id"] = block_id_json(block_id(header))
        return answer

    return lie


def set_app_hash(header: dict[str, Any]) -> None:
    header["app_hash"] = "00" * 32


def break_signature(answer: Any) -> Any:
    vote = answer["signed_header"]["commit"]["signatures"][0]
    vote["signature"] = base64.b64encode(bytes(64)).decode()
    return answer


def drop_signature(answer: Any) -> Any:
    vote = answer["signed_header"]["commit"]["signatures"][0]
    vote |= {"block_id_flag": 1, "validator_address": "", "timestamp": "0001-01-01T00:00:00Z", "signature": None}
    return answer


def more_power(answer: Any) -> Any:
    answer["validators"][0]["voting_power"] = "1"
    return answer


LIES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "another value": ("abci_query", change_proof(lambda p: replace(p, value=RICH)), "holds another value"),
    "a value in its bucket": ("abci_query", change_proof(with_other_bucket), "does not lead to the app hash"),
    "absence": ("abci_query", change_proof(lambda p: replace(p, value=None)), "its bucket holds it"),
    "another app hash": ("commit", in_header(set_app_hash), "signatures are for another header"),
    "another header": ("commit", in_header(set_app_hash, and_its_hash=True), "signature 0 is not by validator"),
    "a broken signature": ("commit", break_signature, "signature 0 is not by validator"),
    "no signature": ("commit", drop_signature, "signed by 0 of 100 power"),
    "another power": ("validators", more_power, "not the one whose hash the header holds"),
    "no commit at all": ("commit", lambda answer: {"canonical": True}, "sent something else"),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_is_refused_with_its_reason(node: Node, name: str) -> None:
    method, lie, reason = LIES[name]
    node.engine.lies[method] = lie
    assert reason in await node.refused()


async def test_the_proof_of_another_key_is_refused(node: Node) -> None:
    key = ACCOUNTS.key(node.made.identity.operator)

    def lie(answer: Any) -> Any:
        node.engine.lies.clear()
        return node.engine._abci_query("key", key.hex(), prove=True)

    node.engine.lies["abci_query"] = lie
    assert "another key" in await node.refused()


async def test_a_chain_signed_by_others_is_refused(node: Node) -> None:
    def forged(height: int) -> Any:
        true = node.engine.light_block(height).header
        header = make_header(true.chain_id, height, [THIEF], app_hash=true.app_hash, time_ns=true.time_ns)
        below = node.engine.light_block(height - 1).header if height > 1 else None
        return sign(header if below is None else replace(header, last_block_id=block_id(below)), [THIEF])

    node.engine.lies = {
        "commit": lambda answer: commit_json(forged(int(answer["signed_header"]["header"]["height"]))),
        "validators": lambda answer: validators_json(forged(int(answer["block_height"]))),
    }
    assert "not the one that the header below it names" in await node.refused()


async def test_an_old_state_passed_off_as_the_newest_is_refused(node: Node) -> None:
    node.engine.behind_s = 100
    height = node.engine.deliver()
    await node.served.node.follower.wait_for_height(height + 1, 10.0)
    assert "verified but old" in await node.refused()


async def test_a_state_of_a_block_that_never_comes_is_refused(node: Node) -> None:
    def lie(answer: Any) -> Any:
        answer["response"]["height"] = str(10**12)
        return answer

    node.engine.lies["abci_query"] = lie
    assert "gives no block 1000000000001" in await node.refused()


async def test_a_genesis_too_old_to_trust_says_what_to_give(node: Node) -> None:
    said = await node.refused("--trusting-period", "60", "--verify", "account", ADDRESS)
    assert "--trust-height" in said


async def test_two_nodes_with_different_blocks_are_an_attack_that_names_both(node: Node) -> None:
    async with signed_node(node.made, node.signer, node.folder / "fork") as (other, engine):
        await other.node.follower.wait_for_height(node.engine.height + 1, 20.0)
        urls = f"{node.served.url} {other.url}"
        result = await node.query("--verify", "account", ADDRESS, OUTERSTEP_NODE=urls)
    assert result.exit_code == 1
    said = one_line(result)
    assert "ATTACK" in said
    assert node.served.url in said
    assert other.url in said
    assert engine.height > 1
