"""Calls made from the OpenRPC document itself: what fits it is answered as it says, what breaks it is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from node import errors
from node.client import Client
from node.engine_proxy import METHODS as ENGINE_METHODS
from node.engine_proxy import BadCall, read_call
from node.openrpc import describe
from primitives.keys import format_address
from tests.node.conftest import ALICE, Served
from tests.node.test_openrpc import MESSAGES, resolved

DOCUMENT: Final = describe()
METHODS: Final[dict[str, dict[str, Any]]] = {method["name"]: method for method in DOCUMENT["methods"]}
EXAMPLES: Final = settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
ANSWER_S: Final = 60.0
ENGINE_CODES: Final = {
    errors.PARSE_ERROR,
    errors.INVALID_REQUEST,
    errors.METHOD_NOT_FOUND,
    errors.INVALID_PARAMS,
}
WAITS: Final = ("wait_s", "timeout_s")
"""Parameters that hold an answer back; kept near zero."""

any_text = st.text(st.characters(exclude_categories=()), max_size=20)
integers = st.integers(0, 9) | st.integers() | st.sampled_from([-1, 2**63 - 1, 2**63, 2**64, 10**100])
hex_text = st.sampled_from([32, 20, 33, 0, 1]).flatmap(lambda n: st.binary(min_size=n, max_size=n)) | st.binary()
byte_text = (
    hex_text.map(bytes.hex)
    | hex_text.map(lambda value: f"0x{value.hex().upper()}")
    | st.just(format_address(ALICE.address))
    | st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=60).map(lambda rest: f"outer1{rest}")
)
json_values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**1000)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
    | any_text
    | st.sampled_from(["0", "0g", "ABCD", "0x00", " 00", "1", [], {}, [[]], {"a": None}, ["00"]])
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema as parameters have them.

    Raises: KeyError for a form of schema that this does not know.
    """
    if "anyOf" in schema:
        return st.one_of([fitting(option) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        return byte_text
    return {
        "integer": integers,
        "number": st.floats(-1.0, 0.01),
        "boolean": st.booleans(),
        "string": any_text,
        "null": st.none(),
    }[schema["type"]]


@st.composite
def fitting_params(draw: st.DrawFn, method: dict[str, Any]) -> dict[str, Any]:
    """Parameters that fit the document."""
    params = {}
    for param in method["params"]:
        if param["required"] or param["name"] in WAITS or draw(st.booleans()):
            params[param["name"]] = draw(fitting(param["schema"]))
    return params


@st.composite
def broken_params(draw: st.DrawFn, method: dict[str, Any]) -> Any:
    """Parameters of which one is missing, unknown, one too many, or of no form that the document allows."""
    params = draw(fitting_params(method))
    names = {param["name"]: param for param in method["params"]}
    required = [name for name, param in names.items() if param["required"]]
    ways = ["unknown", "too many", *(["missing"] if required else []), *(["form"] * 4 if names else [])]
    way = draw(st.sampled_from(ways))
    if way == "too many":
        return [None] * (len(names) + 1)
    if way == "unknown":
        return {**params, draw(any_text.filter(lambda name: name not in names)): draw(json_values)}
    if way == "missing":
        del params[draw(st.sampled_from(required))]
        return params
    name = draw(st.sampled_from(sorted(names)))
    validator = resolved(names[name]["schema"], DOCUMENT)
    return {**params, name: draw(json_values.filter(lambda value: not validator.is_valid(value)))}


class Caller:
    """Calls of one node, also from hypothesis, which runs in a thread of its own."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(self, method: str, params: Any) -> dict[str, Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        async with self._session.post(f"{self._url}/rpc", data=body) as response:
            assert response.status == 200, (method, params)
            answer: dict[str, Any] = await response.json()
        assert ("result" in answer) != ("error" in answer)
        return answer

    async def check(self, method: str, drawn: st.SearchStrategy[Any], verdict: Callable[[Any, Any], None]) -> None:
        """`verdict` of (parameters, answer) for parameters that hypothesis draws."""
        loop = asyncio.get_running_loop()

        @EXAMPLES
        @given(drawn)
        def one(params: Any) -> None:
            answer = asyncio.run_coroutine_threadsafe(self.call(method, params), loop).result(ANSWER_S)
            verdict(params, answer)

        await loop.run_in_executor(None, one)


@pytest.fixture
async def caller(served: Served, client: Client) -> AsyncIterator[Caller]:
    """A node that holds a job, a deal and a worker."""
    sent = asyncio.create_task(client.send(MESSAGES))
    async with asyncio.timeout(30):
        while not served.engine.mempool:
            await asyncio.sleep(0.01)
        served.engine.deliver()
        await sent
    async with aiohttp.ClientSession() as session:
        yield Caller(session, served.url)


@pytest.mark.parametrize("name", METHODS)
async def test_fitting_call_gets_a_fitting_result_or_a_documented_error(caller: Caller, name: str) -> None:
    method = METHODS[name]
    codes = {error["code"] for error in method["errors"]} - {errors.INTERNAL_ERROR}
    result: Draft7Validator = resolved(method["result"]["schema"], DOCUMENT)

    def verdict(params: Any, answer: dict[str, Any]) -> None:
        if "error" in answer:
            assert answer["error"]["code"] in codes, (params, answer)
        else:
            result.validate(answer["result"])

    await caller.check(name, fitting_params(method), verdict)


@pytest.mark.parametrize("name", METHODS)
async def test_call_that_breaks_the_document_has_invalid_params(caller: Caller, name: str) -> None:
    def verdict(params: Any, answer: dict[str, Any]) -> None:
        assert answer.get("error", {}).get("code") == errors.INVALID_PARAMS, (params, answer)

    await caller.check(name, broken_params(METHODS[name]), verdict)


async def test_params_that_are_no_object_or_array_are_no_request(caller: Caller) -> None:
    for name in METHODS:
        for params in (None, True, 0, -1.5, "00", 10**100):
            answer = await caller.call(name, params)
            assert answer["error"]["code"] == errors.INVALID_REQUEST, (name, params)


async def test_any_bytes_as_a_transaction_get_an_answer_that_is_not_accepted(caller: Caller) -> None:
    codes = {error["code"] for error in METHODS["tx_broadcast"]["errors"]} - {errors.INTERNAL_ERROR}

    def verdict(params: Any, answer: dict[str, Any]) -> None:
        if "error" in answer:
            assert answer["error"]["code"] in codes, (params, answer)
        else:
            assert answer["result"]["code"] != 0, (params, answer)

    transactions = st.binary(max_size=400).map(lambda tx: {"tx": tx.hex(), "wait": True, "timeout_s": 0.01})
    await caller.check("tx_broadcast", transactions, verdict)


engine_calls = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | json_values,
        "id": json_values,
        "method": st.sampled_from(sorted(ENGINE_METHODS)) | json_values,
        "params": st.dictionaries(st.sampled_from(["height", "page", "per_page"]) | any_text, json_values)
        | json_values,
    },
)


@settings(max_examples=300, deadline=None, database=None)
@given(
    st.binary(max_size=300)
    | engine_calls.map(lambda call: json.dumps(call).encode())
    | json_values.map(repr).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_engine_proxy_reads_any_bytes_or_says_what_is_wrong(body: bytes) -> None:
    problem = None
    try:
        _, method, params = read_call(body)
    except BadCall as error:
        problem = error
    if problem is not None:
        assert problem.code in ENGINE_CODES
        assert problem.message
    else:
        bounds = ENGINE_METHODS[method]
        assert all(bounds[name].low <= int(value) <= bounds[name].high for name, value in params.items())
