"""Four real nodes: hostile workers while one node is down, and processes killed at random moments."""

import asyncio
import contextlib
import random
from collections.abc import Sequence

import pytest

from abci_app.errors import CommitmentMismatch
from abci_app.messages import CommitUpdate, RevealUpdate, Transfer
from abci_app.params import Params
from abci_app.records import Round, Settlement
from localnet.audit import app_hashes, count_supply, differing_heights
from localnet.network import Localnet, NodeProcess
from node.client import Client
from node.errors import NodeError, TransactionFailed
from primitives.amounts import slash_amount
from primitives.keys import PrivateKey
from tests.localnet.players import (
    BOND,
    REWARD,
    Player,
    make_players,
    misshapen_update,
    nan_update,
    open_test_job,
    wait_for_phase,
)

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

HONEST = ("honest0", "honest1", "honest2", "honest3", "honest4")
HOSTILE = ("nan", "misshapen", "copier", "silent")
PHASE_BLOCKS = 25
KILLS = 20
KILL_SEED = 20


async def assert_all_nodes_agree(net: Localnet) -> None:
    """Equal app hashes at every height on all four nodes, and no money made or lost on any."""
    height = max(health.height for health in await net.health())
    await net.wait_for_height(height, nodes=range(4))
    hashes = await app_hashes(net.nodes, range(1, height + 1))
    assert len(hashes) == height
    assert differing_heights(hashes) == []
    for node in net.nodes:
        count = await count_supply(node)
        assert count.conserved, f"{node.name} at height {count.height}: {count.parts} of {count.supply}"


async def run_honest_round(job_id: int, index: int, players: Sequence[Player], pusher: "Pusher") -> Settlement:
    """All of `players` commit, reveal and attest."""
    client = players[0].client
    round_ = await wait_for_phase(client, job_id, index, ["train"], pusher.push)
    updates = [await player.train(round_) for player in players]
    await asyncio.gather(*(player.commit(round_, update) for player, update in zip(players, updates, strict=True)))
    round_ = await wait_for_phase(client, job_id, index, ["reveal"], pusher.push)
    await asyncio.gather(*(player.reveal(round_) for player in players))
    await finish_round(client, job_id, index, players, pusher)
    settlement = await client.settlement(job_id, index)
    assert settlement is not None, f"round {index} was not settled"
    return settlement


async def finish_round(client: Client, job_id: int, index: int, players: Sequence[Player], pusher: "Pusher") -> Round:
    round_ = await wait_for_phase(client, job_id, index, ["aggregate"], pusher.push)
    assert round_.status == "open", round_.void_reason
    submissions = await client.submissions(job_id, index)
    await asyncio.gather(*(player.attest(round_, submissions) for player in players))
    return await wait_for_phase(client, job_id, index, ["none"], pusher.push)


class Pusher:
    """Sends small payments, each of which makes a block come at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._to = PrivateKey.generate().address

    async def push(self) -> None:
        await self._client.send([Transfer(to=self._to, amount=1)])


async def test_a_round_settles_with_a_node_down_and_hostile_workers_and_only_the_honest_are_paid(net: Localnet) -> None:
    job_id = await open_test_job(net, rounds=2, min_workers=len(HONEST), max_workers=9, blocks=PHASE_BLOCKS)
    players = await make_players(net, [*HONEST, *HOSTILE], nodes=[0, 1, 2])
    honest, (nan, misshapen, copier, silent) = players[: len(HONEST)], players[len(HONEST) :]
    async with contextlib.AsyncExitStack() as stack:
        for player in players:
            await stack.enter_async_context(player.client)
        client = honest[0].client
        pusher = Pusher(await stack.enter_async_context(net.client(0, net.faucet)))
        await asyncio.gather(*(player.join(job_id) for player in honest))
        round_ = await wait_for_phase(client, job_id, 0, ["train"], pusher.push)
        await asyncio.gather(*(player.join(job_id) for player in players[len(HONEST) :]))
        first = await run_honest_round(job_id, 0, honest, pusher)
        assert [outcome.verdict for outcome in first.outcomes] == ["paid"] * len(HONEST)
        for player in players:
            player.shared = honest[0].shared

        await net.stop_node(3)
        round_ = await wait_for_phase(client, job_id, 1, ["train"], pusher.push)
        assert len(round_.expected) == len(players)
        updates = {player.name: await player.train(round_) for player in [*honest, nan, misshapen, silent]}
        updates["nan"] = nan_update(updates["nan"])
        updates["misshapen"] = misshapen_update(misshapen.key.address, updates["misshapen"])
        committing = [*honest, nan, misshapen, silent]
        await asyncio.gather(*(player.commit(round_, updates[player.name]) for player in committing))
        stolen = honest[0].intents[1]
        await copier.client.send([CommitUpdate(job_id=job_id, round_index=1, commitment=stolen.commitment)])

        round_ = await wait_for_phase(client, job_id, 1, ["reveal"], pusher.push)
        await asyncio.gather(*(player.reveal(round_) for player in [*honest, nan, misshapen]))
        opening = RevealUpdate(
            job_id=job_id,
            round_index=1,
            base_round=0,
            blob=stolen.header.commitment,
            salt=stolen.salt,
            samples=stolen.samples,
            loss_micro=stolen.loss_micro,
        )
        with pytest.raises(TransactionFailed) as refusal:
            await copier.client.send([opening])
        assert refusal.value.code == CommitmentMismatch.code

        round_ = await finish_round(client, job_id, 1, honest, pusher)
        assert round_.status == "settled", round_.void_reason
        settlement = await client.settlement(job_id, 1)
        assert settlement is not None
        outcomes = {outcome.worker: outcome for outcome in settlement.outcomes}
        slashed = slash_amount(BOND, Params().slash_no_reveal_ppm)
        expected = {player.name: ("paid", REWARD // len(HONEST), 0) for player in honest}
        expected |= {"nan": ("rejected", 0, 0), "misshapen": ("rejected", 0, 0)}
        expected |= {"copier": ("no_reveal", 0, slashed), "silent": ("no_reveal", 0, slashed)}
        found = {player.name: outcomes[player.key.address] for player in players}
        assert {name: (o.verdict, o.paid, o.slashed) for name, o in found.items()} == expected
        assert settlement.state_root == honest[0].shared.root
    await net.start_node(3)
    await assert_all_nodes_agree(net)


async def test_twenty_kills_at_random_moments_leave_all_nodes_with_equal_app_hashes(net: Localnet) -> None:
    chance = random.Random(KILL_SEED)
    kinds: list[NodeProcess] = ["app", "engine", "services", "node"]
    stop = asyncio.Event()
    load = asyncio.create_task(keep_paying(net, stop))
    before = (await net.health())[0].height
    try:
        for _ in range(KILLS):
            victim, kind = chance.randrange(4), chance.choice(kinds)
            async with asyncio.timeout(60):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), chance.uniform(0.0, 0.7))
                net.kill(victim, kind)
                if kind == "node":
                    await net.start_node(victim, wait=False)
                reached = max(health.height for health in await net.health())
                await net.wait_for_height(reached + 1)
    finally:
        stop.set()
        sent = await load
    assert sent > 0
    after = max(health.height for health in await net.health())
    assert after >= before + KILLS
    await assert_all_nodes_agree(net)


async def keep_paying(net: Localnet, stop: asyncio.Event) -> int:
    """Payments one after the other through whichever node answers; returns how many were committed."""
    sent, to = 0, PrivateKey.generate().address
    while not stop.is_set():
        for index in range(4):
            async with net.client(index, net.faucet) as client:
                with contextlib.suppress(NodeError):
                    await client.send([Transfer(to=to, amount=1)], timeout_s=3)
                    sent += 1
    reached = max(health.height for health in await net.health())
    await net.wait_for_height(reached + 1, nodes=[0])  # it may have been killed last and be a few blocks behind
    async with net.client(0) as client:
        assert (await client.account(to)).balance >= sent
    return sent
