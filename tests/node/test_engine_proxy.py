"""POST /engine: what passes, what does not, and that CometBFT never sees what was not checked."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from node import errors
from node.chain import Engine
from node.config import LimitsConfig
from node.engine_proxy import HEIGHT, MAX_BODY_BYTES, METHODS, BadCall, EngineProxy, read_call

COMETBFT_TEXT = "height 9 must be less than or equal to the current blockchain height 8"


class EngineBehind:
    """Answers as CometBFT does, and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def post(self, request: web.Request) -> web.Response:
        call = await request.json()
        self.calls.append((call["method"], call["params"]))
        if call["params"].get("height") == "9":
            problem = {"code": -32603, "message": "Internal error", "data": COMETBFT_TEXT}
            return web.json_response({"jsonrpc": "2.0", "id": call["id"], "error": problem}, status=500)
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": {"from": call["method"]}})


class Caller:
    """Raw bodies to one proxy."""

    def __init__(self, session: aiohttp.ClientSession, url: str, behind: EngineBehind) -> None:
        self._session = session
        self._url = url
        self.behind = behind

    async def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        async with self._session.post(f"{self._url}/engine", data=body, headers=headers) as response:
            return response.status, json.loads(await response.text())

    async def call(self, method: str, params: Any = None, id_: Any = 0) -> Any:
        call = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        _, answer = await self.post(json.dumps(call).encode())
        return answer


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    behind = EngineBehind()
    engine_application, application = web.Application(), web.Application()
    engine_application.router.add_post("/", behind.post)
    async with TestServer(engine_application) as engine_server:
        engine = Engine(str(engine_server.make_url("")).rstrip("/"))
        application.add_routes(
            EngineProxy(engine, LimitsConfig(calls_per_s=1, calls_burst=2), clock=lambda: 0).routes()
        )
        async with TestServer(application) as server, aiohttp.ClientSession() as session:
            yield Caller(session, str(server.make_url("")).rstrip("/"), behind)
        await engine.close()


@pytest.mark.parametrize("method", sorted(METHODS))
async def test_methods_of_the_light_client_pass_with_the_callers_id(caller: Caller, method: str) -> None:
    assert await caller.call(method, {}, 7) == {"jsonrpc": "2.0", "id": 7, "result": {"from": method}}
    assert caller.behind.calls == [(method, {})]


async def test_numbers_come_as_text_or_number_and_go_on_as_text(caller: Caller) -> None:
    await caller.call("validators", {"height": "5", "page": 1, "per_page": "100"})
    await caller.call("commit", {"height": None})
    expected = {"height": "5", "page": "1", "per_page": "100"}
    assert caller.behind.calls == [("validators", expected), ("commit", {})]


async def test_errors_of_cometbft_keep_their_text_for_its_light_client(caller: Caller) -> None:
    answer = await caller.call("commit", {"height": "9"})
    assert answer["id"] == 0
    assert answer["error"]["data"].endswith(COMETBFT_TEXT)


@pytest.mark.parametrize(
    "method", ["broadcast_tx_sync", "abci_query", "genesis", "dial_peers", "", "unsafe_flush_mempool"]
)
async def test_every_other_method_is_refused_and_not_passed_on(caller: Caller, method: str) -> None:
    answer = await caller.call(method)
    assert answer["error"]["code"] == errors.METHOD_NOT_FOUND
    assert not caller.behind.calls


@pytest.mark.parametrize(
    "params",
    [
        {"height": 0},
        {"height": "-1"},
        {"height": HEIGHT.high + 1},
        {"height": True},
        {"height": 1.0},
        {"height": "٣"},
        {"height": {"$gt": 1}},
        {"page": 1},
        {"hash": "00"},
        ["1"],
    ],
)
async def test_parameters_of_another_form_are_refused_and_not_passed_on(caller: Caller, params: Any) -> None:
    answer = await caller.call("commit", params)
    assert answer["error"]["code"] == errors.INVALID_PARAMS
    assert not caller.behind.calls


async def test_a_batch_is_refused(caller: Caller) -> None:
    _, answer = await caller.post(json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "status"}]).encode())
    assert answer["error"]["code"] == errors.INVALID_REQUEST


async def test_a_body_above_the_limit_is_refused(caller: Caller) -> None:
    status, answer = await caller.post(b" " * (MAX_BODY_BYTES + 1))
    assert (status, answer["error"]["code"]) == (413, errors.INVALID_REQUEST)


async def test_callers_from_elsewhere_are_limited(caller: Caller) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "status"}).encode()
    answers = [await caller.post(body, Via="1.1 somewhere") for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert len(caller.behind.calls) == 2
    assert (await caller.post(body))[0] == 200, "loopback is not limited"


async def test_an_engine_that_is_down_is_said_so() -> None:
    engine = Engine("http://127.0.0.1:1")
    application = web.Application()
    application.add_routes(EngineProxy(engine, LimitsConfig()).routes())
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        answer = await Caller(session, str(server.make_url("")).rstrip("/"), EngineBehind()).call("status")
    await engine.close()
    assert answer["error"]["code"] == errors.NOT_READY


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(
    body=st.binary(max_size=64)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": JSON, "method": st.sampled_from(sorted(METHODS)) | JSON, "params": JSON}
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_body_is_a_checked_call_or_a_clear_error(body: bytes) -> None:
    try:
        _, method, params = read_call(body)
    except BadCall:
        return
    assert set(params) <= set(METHODS[method])
    assert all(value.isdigit() for value in params.values())
