"""Who holds the rows of a blob, and where they are reached today."""

from msgspec.structs import replace

from abci_app.records import Blob
from node.client import Client
from primitives.blobs import ServiceSet


async def row_holders(client: Client, record: Blob) -> ServiceSet | None:
    """The service set that the blob's rows were placed by, with the members' newest addresses.

    A set that the chain has dropped is replaced by the newest one, which works as long as stakes are as they were.
    None when the node knows no set at all.
    """
    newest = await client.service_set()
    placed = await client.service_set(record.set_version)
    if placed is None or newest is None:
        return placed or newest
    urls = {member.operator: member.url for member in newest.members if member.url}
    members = tuple(replace(member, url=urls.get(member.operator, member.url)) for member in placed.members)
    return ServiceSet(version=placed.version, members=members)
