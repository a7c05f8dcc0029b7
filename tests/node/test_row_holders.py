"""Rows are looked for where they were placed, under the addresses of today."""

from typing import Any

import pytest

from abci_app.records import Blob
from node.client import Client
from node.row_holders import row_holders
from primitives.blobs import BlobHeader, ServiceMember, ServiceSet

HEADER = BlobHeader(version=1, codec="isal", k=1, n=3, size=1, row_size=64, rows_root=bytes(32))
BLOB = Blob(HEADER, "a", bytes(20), certified_height=5, expiry_height=50, set_version=1, attesters=())


def member(name: bytes, stake: int, url: str) -> ServiceMember:
    return ServiceMember(operator=name * 20, stake=stake, service_key=name * 32, url=url)


PLACED = ServiceSet(1, (member(b"a", 10, "http://old"), member(b"b", 20, "http://left")))
NEWEST = ServiceSet(4, (member(b"a", 90, "http://new"), member(b"c", 20, "http://joined")))


class SetsOnly(Client):
    """A client that knows some service sets and asks nobody."""

    def __init__(self, *sets: ServiceSet) -> None:
        super().__init__("http://127.0.0.1:1")
        self._sets = {each.version: each for each in sets}

    async def service_set(self, version: int | None = None) -> Any:
        return self._sets.get(max(self._sets, default=0) if version is None else version)


async def test_stakes_are_those_of_the_placement_and_addresses_those_of_today() -> None:
    found = await row_holders(SetsOnly(PLACED, NEWEST), BLOB)
    assert found == ServiceSet(1, (member(b"a", 10, "http://new"), member(b"b", 20, "http://left")))


@pytest.mark.parametrize(("sets", "expected"), [((NEWEST,), NEWEST), ((PLACED,), PLACED), ((), None)])
async def test_whatever_set_is_left_is_used(sets: tuple[ServiceSet, ...], expected: ServiceSet | None) -> None:
    assert await row_holders(SetsOnly(*sets), BLOB) == expected
