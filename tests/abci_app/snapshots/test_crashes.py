"""The real process, killed at every place of taking and restoring a snapshot, and what the next one finds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from abci_app.failpoints import FAIL_POINTS, VARIABLE
from abci_app.server import abci_pb2 as pb
from abci_app.store import Store
from tests.abci_app.kit import AppProcess, block, init_chain, transfer
from tests.abci_app.server.client import AbciClient
from tests.abci_app.snapshots.kit import APPLY, HEIGHT, OFFER, Peer, chunk, content, some_state

DEADLINE_S = 30
INTERVAL = 2


@contextlib.asynccontextmanager
async def calling(app: AppProcess, **variables: str) -> AsyncIterator[AbciClient]:
    """A process of its own, and a connection to it; killed at the end if it has not died before."""
    app.environment = variables
    await app.start()
    assert "ready" in app.ready_line
    try:
        async with await AbciClient.connect(app.socket) as client:
            yield client
    finally:
        await app.kill()


async def died(app: AppProcess) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert await app.process.wait() == -9


async def listed(client: AbciClient) -> list[int]:
    answer: Any = await client.call(list_snapshots=pb.RequestListSnapshots())
    return [snapshot.height for snapshot in answer.snapshots]


async def run_blocks(client: AbciClient, first: int) -> None:
    """As many blocks as lie between two snapshots."""
    for height in range(first, first + INTERVAL):
        await client.call(finalize_block=block(height, [transfer(height - 1)]))
        await client.call(commit=pb.RequestCommit())


@pytest.mark.parametrize("place", [name for name in FAIL_POINTS if name.startswith("snapshot.")])
async def test_a_process_killed_while_it_takes_a_snapshot(place: str, tmp_path: Path) -> None:
    app = AppProcess(tmp_path, arguments=("--snapshot-interval", str(INTERVAL)))
    async with calling(app, **{VARIABLE: place}) as client:
        await client.call(init_chain=init_chain())
        with contextlib.suppress(EOFError, OSError):
            await run_blocks(client, 1)
        await died(app)
    async with calling(app) as client:
        assert (await client.call(info=pb.RequestInfo())).last_block_height == INTERVAL
        done = [INTERVAL] if place == "snapshot.end" else []
        assert await listed(client) == done
        assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [str(height) for height in done]
        await run_blocks(client, INTERVAL + 1)
        async with asyncio.timeout(DEADLINE_S):
            while await listed(client) != [2 * INTERVAL, *done]:
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    return Peer(tmp_path_factory.mktemp("peer"))


async def restore(client: AbciClient, peer: Peer) -> None:
    answer: Any = await client.call(offer_snapshot=peer.offer())
    assert answer.result == OFFER.ACCEPT
    for index, data in enumerate(peer.chunks):
        answer = await client.call(apply_snapshot_chunk=chunk(index, data))
        assert answer.result == APPLY.ACCEPT


@pytest.mark.parametrize("place", [name for name in FAIL_POINTS if name.startswith("restore.")])
async def test_a_process_killed_while_it_restores(place: str, peer: Peer, tmp_path: Path) -> None:
    app = AppProcess(tmp_path)
    later = f"{place}:5" if place == "restore.chunk_applied" else place
    async with calling(app, **{VARIABLE: later}) as client:
        with pytest.raises((EOFError, OSError)):
            await restore(client, peer)
        await died(app)
    async with calling(app) as client:
        done = place in ("restore.renamed", "restore.end")
        assert (await client.call(info=pb.RequestInfo())).last_block_height == (HEIGHT if done else 0)
        await restore(client, peer)
        info = await client.call(info=pb.RequestInfo())
        assert (info.last_block_height, info.last_block_app_hash) == (HEIGHT, peer.app_hash)
    with Store(app.data) as store:
        assert content(store) == some_state()
        assert store.check_integrity() == len(some_state())
