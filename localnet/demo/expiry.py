"""Shows that a stored file is gone once its height has passed: from the lists of every node, and from their disks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


async def look_for(nodes: Sequence[NodeState], deal: Deal) -> ExpirySearch:
    """Look for the deal in every list and under every address of every node. For an expired one, call it once every
    node is above the deal's end height.

    Raises: NodeError, OSError or aiohttp.ClientError when a node does not answer.
    """
    looked_at, found = 0, list[str]()
    for node in nodes:
        async with Client(node.url) as client:
            for place in [_listed(client, deal, status) for status in LIVING] + [_held(client, node, deal)]:
                looked_at += 1
                found += [f"{node.name}: {name}" for name in await place]
            for path in (f"deals/{deal.id}", f"files/{deal.root.hex()}", f"files/{deal.root.hex()}/segments/0"):
                looked_at += 1
                found += await _served(client, f"{node.url}/storage/v1/{path}")
    return ExpirySearch(deal_id=deal.id, end_height=deal.end_height, looked_at=looked_at, found=tuple(found))


async def _served(client: Client, place: str) -> list[str]:
    """The address, when it serves something or says anything but "not here"."""
    async with client.session.get(place) as answer:
        if answer.status < 400:
            return [place]
        if answer.status in (404, 410):
            return []
        return [f"{place} (answers {answer.status}: {(await answer.text())[:100]})"]


async def _listed(client: Client, deal: Deal, status: DealStatus) -> list[str]:
    return [f"storage_listDeals ({status})"] if deal.id in await _listed_ids(client, status) else []


async def _held(client: Client, node: NodeState, deal: Deal) -> list[str]:
    return ["/storage/v1/deals"] if deal.id in await _held_ids(client, node) else []


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
