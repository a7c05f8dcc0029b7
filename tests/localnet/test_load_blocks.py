"""Blocks and results of CometBFT, reduced to what a load is judged by."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from localnet.load.blocks import block_txs, failures
from localnet.load.errors import LoadError

HEADER = '"header":{"height":"5"}'


@asynccontextmanager
async def answering(text: str) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A session, and the address of a server that gives this answer to everything."""

    async def answer(request: web.Request) -> web.Response:
        assert request.query == {"height": "5"}
        return web.Response(text=text, content_type="application/json")

    app = web.Application()
    app.router.add_get("/{method}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("txs", "want"), [('["YQ==","Yg=="]', [b"YQ==", b"Yg=="]), ("[]", []), ("null", [])])
async def test_transactions_come_in_the_order_of_the_block(txs: str, want: list[bytes]) -> None:
    text = f'{{"jsonrpc":"2.0","id":-1,"result":{{"block":{{{HEADER},"data":{{"txs":{txs}}},"evidence":{{}}}}}}}}'
    async with answering(text) as (session, url):
        assert await block_txs(session, url, 5) == want


@pytest.mark.parametrize(
    ("results", "want"),
    [
        ("null", {}),
        (
            '[{"code":0,"data":null},{"code":20,"log":"WrongNonce","events":[]},{"code":1}]',
            {1: "code 20: WrongNonce", 2: "code 1: "},
        ),
    ],
)
async def test_failures_are_named_by_their_place_in_the_block(results: str, want: dict[int, str]) -> None:
    async with answering(f'{{"result":{{"height":"5","txs_results":{results}}}}}') as (session, url):
        assert await failures(session, url, 5) == want


@pytest.mark.parametrize("text", ['{"error":{"code":-32603}}', '{"result":{}}', "not JSON", '{"result":{"block":7}}'])
async def test_another_form_is_an_error_that_names_the_address(text: str) -> None:
    async with answering(text) as (session, url):
        with pytest.raises(LoadError, match=f"{url}/block.* unexpected form"):
            await block_txs(session, url, 5)


async def test_a_server_that_is_gone_is_an_error_that_names_the_address() -> None:
    async with answering("") as (_, url):
        pass
    async with aiohttp.ClientSession() as session:
        with pytest.raises(LoadError, match=f"{url}/block_results.* gives no answer"):
            await failures(session, url, 5)
