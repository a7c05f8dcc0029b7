"""What a caller of JSON-RPC takes from the other side, which may be anybody."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from node import rpc_client
from node.errors import NodeUnreachable
from node.rpc_client import RpcConnection


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(1000))


async def elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPTemporaryRedirect("/answer")


async def answer(request: web.Request) -> web.StreamResponse:
    return web.json_response({"jsonrpc": "2.0", "id": 1, "result": "from elsewhere"})


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    app = web.Application()
    app.add_routes([web.post("/endless", endless), web.post("/elsewhere", elsewhere), web.post("/answer", answer)])
    async with TestServer(app) as server:
        yield server


@pytest.mark.parametrize(("path", "reason"), [("/endless", "is longer than 5000 bytes"), ("/elsewhere", "is not JSON")])
async def test_answers_without_end_and_redirects_are_not_followed(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.setattr(rpc_client, "MAX_ANSWER_BYTES", 5000)
    connection = RpcConnection(str(server.make_url(path)))
    with pytest.raises(NodeUnreachable, match=reason):
        await connection.call("node_status", {})
    await connection.close()
