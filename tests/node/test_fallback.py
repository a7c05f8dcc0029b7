"""A client of several nodes asks the next one when one does not answer."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from node.errors import NOT_READY, NodeUnreachable, RpcError
from node.fallback import FallbackClient


async def serve(answer: dict[str, Any]) -> TestServer:
    """A node that gives the same answer to everything."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": (await request.json())["id"], **answer})

    app = web.Application()
    app.add_routes([web.post("/rpc", handle)])
    server = TestServer(app)
    await server.start_server()
    return server


def url_of(server: TestServer) -> str:
    return str(server.make_url("/"))


async def test_a_node_that_is_down_is_passed_over() -> None:
    good = await serve({"result": {"height": 7}})
    async with FallbackClient(["http://127.0.0.1:1", url_of(good)]) as client:
        assert await client.height() == 7
        assert await client.height() == 7
    await good.close()


async def test_a_node_that_is_not_ready_is_passed_over() -> None:
    starting = await serve({"error": {"code": NOT_READY, "message": "starting"}})
    good = await serve({"result": {"height": 7}})
    async with FallbackClient([url_of(starting), url_of(good)]) as client:
        assert await client.height() == 7
    await starting.close()
    await good.close()


async def test_a_refusal_is_an_answer() -> None:
    refusing = await serve({"error": {"code": -32602, "message": "no"}})
    good = await serve({"result": {"height": 7}})
    async with FallbackClient([url_of(refusing), url_of(good)]) as client:
        with pytest.raises(RpcError, match="no"):
            await client.height()
    await refusing.close()
    await good.close()


async def test_the_last_trouble_is_told_when_no_node_answers() -> None:
    async with FallbackClient(["http://127.0.0.1:1", "127.0.0.1:2"]) as client:
        with pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:2"):
            await client.height()
