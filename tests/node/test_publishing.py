"""A promised update is opened with the service set that its blob was cut for."""

import pytest

from abci_app import tables
from abci_app.messages import Bond, PublishBlob, Unbond
from node.intents import Intent
from node.publishing import CannotCertify, commit, make_intent, reveal
from tests.abci_app.rules.chain import TOKEN, Chain, key
from tests.abci_app.rules.rounds_kit import started
from tests.node.memory_network import MemoryClient, MemoryNetwork, network
from training import LocalUpdate

__all__ = ["network"]


async def promised(net: MemoryNetwork) -> tuple[MemoryClient, Intent]:
    """The only worker of a job has committed to an update of 1,000 bytes."""
    chain = started("w0", chain=net.chain, min_workers=1)
    client = net.client(key("w0"))
    update = LocalUpdate(
        round_index=0, base_round=-1, payload=bytes(1000), samples=10, loss_micro=2_000_000, fp32_bytes=1000
    )
    intent = await make_intent(client, chain.round(0), update)
    await commit(client, intent)
    return client, intent


def expiry(chain: Chain) -> int:
    return chain.height + 100


async def test_stake_that_moves_after_the_promise_does_not_matter(network: MemoryNetwork) -> None:
    client, intent = await promised(network)
    await network.client(key("v0")).send([Unbond(amount=10 * TOKEN)])
    await reveal(client, intent, expiry_height=expiry(network.chain))
    (published,) = network.messages_of(key("w0"), PublishBlob)
    assert isinstance(published, PublishBlob)
    promise = published.certificate.promise
    assert promise.header == intent.header
    assert promise.set_version == intent.set_version < network.chain.service_set().version


@pytest.mark.parametrize(("moves", "possible"), [(Bond(amount=1), True), (Unbond(amount=10 * TOKEN), False)])
async def test_where_its_set_is_gone_the_newest_one_serves_if_it_asks_for_the_same_rows(
    network: MemoryNetwork, moves: Bond | Unbond, possible: bool
) -> None:
    await network.client(key("v0")).send([Bond(amount=1)])
    client, intent = await promised(network)
    await network.client(key("v0")).send([moves])
    del network.chain.state.items[tables.SERVICE_SETS.key(intent.set_version)]
    if not possible:
        with pytest.raises(CannotCertify, match="round 0"):
            await reveal(client, intent, expiry_height=expiry(network.chain))
        return
    await reveal(client, intent, expiry_height=expiry(network.chain))
    assert network.chain.submission("w0", 0).blob == intent.header.commitment
