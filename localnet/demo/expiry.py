"""Shows that a stored file is gone once its height has passed: from the lists of every node, and from their disks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp

from abci_app.records import Deal
from localnet.state import NodeState
from node.client import Client, DealStatus

LIVING: Final[tuple[DealStatus, ...]] = ("active", "pending")


@dataclass(frozen=True, slots=True)
class ExpirySearch:
    """Where a deal's file was looked for, and where it was still found."""

    deal_id: int
    end_height: int
    looked_at: int
    """Answers that were read, over all nodes."""
    found: tuple[str, ...]
    """Empty when it is gone everywhere."""


async def is_served(nodes: Sequence[NodeState], deal: Deal) -> list[str]:
    """Addresses under which some node serves the deal or its file now."""
    places = [
        f"{node.url}/storage/v1/{path}"
        for node in nodes
        for path in (f"deals/{deal.id}", f"files/{deal.root.hex()}", f"files/{deal.root.hex()}/segments/0")
    ]
    found = []
    async with aiohttp.ClientSession() as session:
        for place in places:
            async with session.get(place) as answer:
                if answer.status < 400:
                    found.append(place)
                elif answer.status not in (404, 410):
                    found.append(f"{place} (answers {answer.status}: {(await answer.text())[:100]})")
    return found


async def is_listed(nodes: Sequence[NodeState], deal: Deal) -> list[str]:
    """Names of the nodes whose storage_listDeals or own list of held deals names the deal as living."""
    found = []
    for node in nodes:
        async with Client(node.url) as client:
            for status in LIVING:
                if deal.id in await _listed_ids(client, status):
                    found.append(f"{node.name}: storage_listDeals ({status})")
            if deal.id in await _held_ids(client, node):
                found.append(f"{node.name}: /storage/v1/deals")
    return found


async def search_expired(nodes: Sequence[NodeState], deal: Deal) -> ExpirySearch:
    """Look for an expired deal everywhere. Call it once every node is above the deal's end height."""
    found = [*await is_listed(nodes, deal), *await is_served(nodes, deal)]
    return ExpirySearch(deal_id=deal.id, end_height=deal.end_height, looked_at=len(nodes) * 6, found=tuple(found))


async def _listed_ids(client: Client, status: DealStatus) -> set[int]:
    """Ids of all deals that the node's JSON-RPC lists as `status`."""
    return {deal.id for deal in await client.every(lambda cursor: client.deals(status=status, cursor=cursor))}


async def _held_ids(client: Client, node: NodeState) -> set[int]:
    """Ids of all deals that the node's storage service says it holds."""
    ids, after = set[int](), 0
    while True:
        async with client.session.get(f"{node.url}/storage/v1/deals", params={"after": after}) as answer:
            body = await answer.json()
        ids |= {int(deal["id"]) for deal in body["deals"]}
        if body["next"] is None:
            return ids
        after = int(body["next"])
