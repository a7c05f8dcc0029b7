"""/metrics of the real services: what DA layer, storage, engine and JSON-RPC count, in the text form of Prometheus."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from abci_app.messages import Transfer
from da_layer.coding import encode_blob
from da_layer.errors import StoreFull
from da_layer.store import RowStore
from node import metrics as metrics_module
from node import services as services_module
from node.client import Client
from node.metric_names import DA, ENGINE, STORAGE
from node.services import Services
from primitives.blobs import ServiceSet
from tests.da_layer.network import promise_for, proven_rows, sign
from tests.node.conftest import BOB, Served

PAGE = (Path(services_module.__file__).parent.parent / "docs/running.md").read_text()
BLOB = encode_blob(b"x" * 5000, k=4, n=12)


class Scrape:
    """Calling it reads /metrics: the value of each sample by its name."""

    def __init__(self, server: TestServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def __call__(self) -> dict[str, float]:
        families = text_string_to_metric_families((await self.get("/metrics")).decode())
        return {sample.name: sample.value for family in families for sample in family.samples}

    async def get(self, path: str) -> bytes:
        async with self._session.get(self._server.make_url(path)) as response:
            return await response.read()


@pytest.fixture
async def scrape(services: Services, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scrape]:
    monkeypatch.setattr(metrics_module, "ENGINE_KEPT_S", 0.0)
    async with TestServer(services.application()) as server, aiohttp.ClientSession() as session:
        yield Scrape(server, session)


def hold_rows(store: RowStore, *, expiry_height: int) -> None:
    promise = promise_for(BLOB, ServiceSet(1, ()), expiry_height=expiry_height)
    store.put(sign(promise), proven_rows(BLOB, range(3)))


async def test_rows_are_counted_from_storing_to_pruning(services: Services, scrape: Scrape) -> None:
    hold_rows(services.rows, expiry_height=50)
    rows = f"/da/v1/blobs/{BLOB.commitment.hex()}/rows"
    served = await scrape.get(f"{rows}?index=0&index=1")
    before = await scrape()
    assert before["outerstep_da_blobs_held"] == before["outerstep_da_promises_stored_total"] == 1
    assert (before["outerstep_da_rows_held"], before["outerstep_da_rows_served_total"]) == (3, 2)
    assert before["outerstep_da_held_bytes"] == services.rows.used_bytes > 0
    assert before["outerstep_da_served_bytes_total"] == len(served)
    for path in services.rows._path.glob("blobs/*/*/rows"):
        path.write_bytes(bytes(path.stat().st_size))
    await scrape.get(rows)
    damaged = await scrape()
    assert (damaged["outerstep_da_rows_damaged_total"], damaged["outerstep_da_rows_held"]) == (3, 0)
    assert damaged["outerstep_da_requests_refused_total"] == before["outerstep_da_requests_refused_total"] + 1
    services.rows.prune(51)
    after = await scrape()
    assert (after["outerstep_da_blobs_held"], after["outerstep_da_promises_pruned_total"]) == (0, 1)
    assert after["outerstep_da_held_bytes"] == 0


async def test_rows_refused_for_want_of_room_are_counted(services: Services, scrape: Scrape) -> None:
    services.rows.budget_bytes = 10
    with pytest.raises(StoreFull):
        hold_rows(services.rows, expiry_height=50)
    assert (await scrape())["outerstep_da_full_refused_total"] == 1


async def test_all_that_storage_counts_is_there(services: Services, scrape: Scrape) -> None:
    services.storage.counters.cache_hits = 7
    services.files.num_rotten = 2
    with services.storage.uploads:
        found = await scrape()
    assert found["outerstep_storage_cache_hits_total"] == 7
    assert found["outerstep_storage_segments_rotten_total"] == 2
    assert found["outerstep_storage_uploads_running"] == 1
    assert set(services.storage.metrics()) == set(STORAGE)
    assert set(services.rows.metrics()) == set(DA)


async def test_engine_height_lag_and_mempool_are_there(served: Served, client: Client, scrape: Scrape) -> None:
    served.engine.app_lag = 3
    signed = await client.build([Transfer(to=BOB.address, amount=1)])
    await client.broadcast(signed.data)
    found = await scrape()
    assert found["outerstep_engine_up"] == 1
    assert found["outerstep_app_height"] == served.engine.height
    assert found["outerstep_engine_height"] == served.engine.height + 3
    assert found["outerstep_app_lag_blocks"] == 3
    assert (found["outerstep_mempool_transactions"], found["outerstep_mempool_bytes"]) == (1, len(signed.data))
    assert found["outerstep_peers"] == 1


@pytest.mark.parametrize("shape", [None, [], "text", {}, {"sync_info": {}}])
async def test_an_engine_that_is_down_or_odd_is_said_and_the_rest_is_there(
    served: Served, scrape: Scrape, shape: Any
) -> None:
    served.engine.odd["status"] = shape
    odd = await scrape()
    served.engine.down = True
    down = await scrape()
    for found in (odd, down):
        assert found["outerstep_engine_up"] == 0
        assert "outerstep_engine_height" not in found
        assert "outerstep_storage_height" in found


async def test_many_scrapes_ask_the_engine_once(
    served: Served, scrape: Scrape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "ENGINE_KEPT_S", 3600.0)
    served.engine.app_lag = 1
    assert (await scrape())["outerstep_app_lag_blocks"] == 1
    served.engine.app_lag = 2
    assert (await scrape())["outerstep_app_lag_blocks"] == 1


async def test_names_are_prefixed_and_documented_and_no_others_are(scrape: Scrape) -> None:
    documented = set(re.findall(r"`(outerstep_\w+)`", PAGE)) - {"outerstep_"}
    families = {name.removesuffix("_total") for name in await scrape()}
    assert all(name.startswith("outerstep_") for name in families)
    assert families | {"outerstep_rpc_calls"} == documented
    assert {name.name for table in (DA, STORAGE, ENGINE) for name in table.values()} <= documented
