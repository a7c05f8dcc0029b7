"""A fifth node becomes a validator of a running network by the command line; another one leaves; the chain goes on."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localnet.audit import app_hashes, count_supply, differing_heights, engine_call
from localnet.health import wait_healthy
from localnet.network import Localnet
from localnet.ports import claim
from localnet.processes import spawn, stop_trees
from localnet.state import NodeState
from node.engine_files import GENESIS_NAME, consensus_address, consensus_key
from node.genesis import DEFAULT_BOND
from node.init import OPERATOR_KEY, read_identity
from node.jsonform import to_json
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import format_address

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

OUTERSTEP = Path(sys.executable).with_name("outerstep")
DEADLINE_S = 120
BOND_TOKENS = DEFAULT_BOND // MICRO_PER_TOKEN


async def outerstep(*words: str | Path | int) -> Any:
    """Run the command; its answer, which is JSON."""
    command = [str(OUTERSTEP), *map(str, words), "--json"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, errors = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def make_fifth(net: Localnet, home: Path, base_port: int) -> NodeState:
    """A home with keys of its own that knows genesis and peers, not started."""
    await outerstep("node", "init", "--home", home, "--moniker", "fifth", "--base-port", base_port)
    identities = []
    for node in net.nodes:
        path = home.with_name(f"{node.name}.json")
        path.write_text(json.dumps(to_json(read_identity(Path(node.home)))))
        identities.append(path)
    await outerstep("node", "join", Path(net.nodes[0].home) / GENESIS_NAME, *identities, "--home", home)
    identity = read_identity(home)
    return NodeState(
        index=4,
        name="fifth",
        home=str(home),
        operator=format_address(identity.operator),
        url=identity.url,
        engine_url=f"http://127.0.0.1:{base_port + 1}",
        p2p_port=base_port,
    )


def engine_name(node: NodeState) -> str:
    """CometBFT's address of the node's consensus key."""
    return consensus_address(consensus_key(Path(node.home))).hex().upper()


async def signers(node: NodeState, height: int) -> set[str]:
    """Whose precommits for this block `node` has seen."""
    async with aiohttp.ClientSession() as session:
        answer = await engine_call(session, node, "commit", {"height": str(height)})
    signatures = answer["signed_header"]["commit"]["signatures"]
    return {item["validator_address"] for item in signatures if item["block_id_flag"] == 2}


async def in_consensus(node: NodeState, height: int) -> set[str]:
    async with aiohttp.ClientSession() as session:
        answer = await engine_call(session, node, "validators", {"height": str(height)})
    return {item["address"] for item in answer["validators"]}


async def newest_height(net: Localnet) -> int:
    return max(health.height for health in await net.health())


async def wait_for_signature(net: Localnet, name: str) -> int:
    """Wait until a block is signed by this validator; its height."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            height = await newest_height(net)
            await net.wait_for_height(height + 1, nodes=[0])
            if name in await signers(net.nodes[0], height):
                return height


async def test_a_node_joins_the_validators_by_the_command_line_and_another_leaves(
    net: Localnet, short_folder: Path
) -> None:
    url, faucet = net.nodes[0].url, net.state.faucet
    with claim(None, 1) as port:
        fifth = await make_fifth(net, short_folder / "fifth", port)
        process = spawn([OUTERSTEP, "node", "start", "--home", fifth.home], short_folder / "fifth.log")
        try:
            await outerstep("tx", "transfer", fifth.operator, 200, "--key", faucet, "--node", url)
            height = await newest_height(net)
            await wait_healthy([fifth], height=height, timeout_s=DEADLINE_S, check=lambda: None)
            words = ("tx", "register-validator", BOND_TOKENS, "--home", fifth.home, "--node", fifth.url)
            joined = (await outerstep(*words))["height"]
            assert await wait_for_signature(net, engine_name(fifth)) >= joined + 2
            assert engine_name(fifth) not in await in_consensus(fifth, joined + 1)
            assert engine_name(fifth) in await in_consensus(fifth, joined + 2)

            leaver = net.nodes[3]
            key = Path(leaver.home) / OPERATOR_KEY
            left = (await outerstep("tx", "unbond", BOND_TOKENS, "--key", key, "--node", url))["height"]
            await net.wait_for_height(left + 3)
            stay = {engine_name(node) for node in (*net.nodes[:3], fifth)}
            assert await in_consensus(fifth, left + 1) == stay | {engine_name(leaver)}
            assert await in_consensus(fifth, left + 2) == stay

            await net.stop_node(3)
            height = await newest_height(net)
            await outerstep("tx", "transfer", fifth.operator, 1, "--key", faucet, "--node", fifth.url)
            await net.wait_for_height(height + 2, nodes=range(3))
            await wait_healthy([fifth], height=height + 2, timeout_s=DEADLINE_S, check=lambda: None)
            everybody = [*net.nodes[:3], fifth]
            hashes = await app_hashes(everybody, range(1, height + 2))
            assert differing_heights(hashes) == []
            for node in everybody:
                count = await count_supply(node)
                assert count.conserved
                assert count.parts["unbonding"] == DEFAULT_BOND
                assert count.parts["bonds"] == 4 * DEFAULT_BOND
        finally:
            stop_trees([process])
