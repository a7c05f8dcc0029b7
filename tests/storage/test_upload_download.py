"""Upload and download over real sockets: replicas, resume, and providers that fail in every way."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from primitives.deals import SEGMENT_BYTES, receipt_digest
from primitives.keys import verify_signature
from storage.client import StorageClient
from tests.storage.support import (
    CHAIN_ID,
    OPERATORS,
    PUBLIC_KEYS,
    QUICK,
    Chain,
    names_in,
    running_nodes,
    some_bytes,
    urls_of,
)


@pytest.fixture
async def client() -> AsyncIterator[StorageClient]:
    async with aiohttp.ClientSession() as session:
        yield StorageClient(session, timeout_s=0.5, retry=QUICK)


@pytest.mark.parametrize("size", [0, 1, 4096, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 7])
async def test_what_is_uploaded_comes_back_from_every_provider(
    tmp_path: Path, client: StorageClient, size: int
) -> None:
    chain, content = Chain(), some_bytes(size)
    deal = chain.add(content)
    async with running_nodes(tmp_path, chain) as nodes:
        done: list[tuple[int, int]] = []
        receipts = await client.upload(
            content, deal, urls_of(nodes), lambda *p: done.append(p), chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS
        )
        assert [operator for operator, _ in receipts] == OPERATORS
        digest = receipt_digest(CHAIN_ID, deal.id, deal.root, size)
        assert all(verify_signature(PUBLIC_KEYS[operator], digest, receipt) for operator, receipt in receipts)
        assert done[-1] == (3 * size, 3 * size)
        for number, node in enumerate(nodes):
            target = tmp_path / f"back{number}"
            await client.download(deal.root, size, [node.url], target)
            assert target.read_bytes() == content
            assert names_in(tmp_path, "back*.part*") == []
