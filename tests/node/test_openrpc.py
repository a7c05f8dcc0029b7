"""The OpenRPC document is true: real answers of every method fit its schemas, and wrong parameters do not."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft7Validator

from abci_app.messages import CreateDeal, CreateJob, JobTerms, RegisterWorker
from node import errors
from node.client import Client
from node.openrpc import DISCOVER, describe
from node.rpc_methods import METHODS
from primitives.keys import format_address
from tests.node.conftest import ALICE, Served

TERMS = JobTerms(b"m", b"d" * 32, 5, b"g" * 32, 2, 1, 2, 10, 100, 1, 1, 1, 1, 1, ())
MESSAGES = [
    CreateJob(key=b"k" * 32, terms=TERMS),
    CreateDeal(key=b"k" * 32, root=b"r" * 32, size=5, tier="hot", replicas=1, duration=10, series="a"),
    RegisterWorker(bond=10**9),
]
ALICES = format_address(ALICE.address)
HASH = "00" * 32
PARAMS: dict[str, list[dict[str, Any]]] = {
    "node_status": [{}],
    "chain_getHeight": [{}, {"at_least": 1, "wait_s": 0.1}],
    "chain_getBlock": [{}, {"height": 1}, {"height": 99}],
    "chain_getValidators": [{}, {"height": 1}, {"height": 99}],
    "tx_broadcast": [{"tx": "00"}],
    "tx_get": [{"hash": HASH}, {"hash": "sent"}],
    "state_get": [{"key": b"params/".hex(), "prove": True}, {"key": "00"}],
    "params_get": [{}, {"prove": True}],
    "counters_get": [{"prove": True}],
    "account_get": [{"address": ALICES, "prove": True}, {"address": "01" * 20, "prove": True}],
    "validator_get": [{"address": "operator", "prove": True}, {"address": ALICES}],
    "worker_get": [{"address": ALICES, "prove": True}],
    "service_set_get": [{}, {"version": 1, "prove": True}, {"version": 9}],
    "job_get": [{"job_id": 1, "prove": True}, {"job_id": 9}],
    "job_list": [{}, {"limit": 1}],
    "member_list": [{"job_id": 1}],
    "round_get": [{"job_id": 1}, {"job_id": 1, "round_index": 0}],
    "round_list": [{"job_id": 1}],
    "settlement_get": [{"job_id": 1, "round_index": 0}],
    "settlement_list": [{"job_id": 1}],
    "submission_list": [{"job_id": 1, "round_index": 0}],
    "score_list": [{"job_id": 1, "round_index": 0}],
    "da_getBlob": [{"commitment": HASH}],
    "storage_getDeal": [{"deal_id": 1, "prove": True}],
    "storage_listDeals": [{}, {"owner": ALICES, "series": "a", "status": "pending", "limit": 5}],
    "validator_list": [{}],
    "admin_usage": [{}],
    "admin_peers": [{}],
}
SOCKET_ONLY = {"subscribe", "unsubscribe"}


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> Draft7Validator:
    return Draft7Validator({**schema, "components": document["components"]})


async def discover(served: Served, session: aiohttp.ClientSession) -> dict[str, Any]:
    document: dict[str, Any] = await call(served, session, DISCOVER, {})
    return document


async def call(served: Served, session: aiohttp.ClientSession, method: str, params: dict[str, Any]) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with session.post(f"{served.url}/rpc", json=body) as response:
        answer = await response.json()
    assert "result" in answer, (method, params, answer)
    return answer["result"]


async def test_answers_of_all_methods_fit_the_document(served: Served, client: Client) -> None:
    sent = asyncio.create_task(client.send(MESSAGES))
    async with asyncio.timeout(5):
        while not served.engine.mempool:
            await asyncio.sleep(0.01)
    served.engine.deliver()
    tx = (await sent).hash.hex()
    operator = format_address(served.node.identity.operator)
    async with aiohttp.ClientSession() as session:
        document = await discover(served, session)
        for method in document["methods"]:
            if method["name"] in SOCKET_ONLY:
                continue
            for params in PARAMS[method["name"]]:
                params = {k: {"sent": tx, "operator": operator}.get(str(v), v) for k, v in params.items()}
                check_params(method, params, document)
                result = await call(served, session, method["name"], params)
                resolved(method["result"]["schema"], document).validate(result)


def check_params(method: dict[str, Any], params: dict[str, Any], document: dict[str, Any]) -> None:
    described = {param["name"]: param for param in method["params"]}
    assert set(params) <= set(described)
    assert all(name in params for name, param in described.items() if param["required"])
    for name, value in params.items():
        resolved(described[name]["schema"], document).validate(value)


def test_document_names_every_method_and_every_parameter() -> None:
    document = describe()
    described = {m["name"]: [p["name"] for p in m["params"]] for m in document["methods"]}
    assert described == {name: list(method.params.__struct_fields__) for name, method in METHODS.items()}
    assert set(described) == set(PARAMS) | SOCKET_ONLY
    assert all(method["summary"].endswith(".") for method in document["methods"])
    assert json.loads(json.dumps(document)) == document


def test_document_lists_the_errors_that_each_method_can_answer() -> None:
    own = {
        "tx_broadcast": {errors.MEMPOOL_FULL},
        "subscribe": {errors.INVALID_REQUEST},
        "unsubscribe": {errors.INVALID_REQUEST},
        "admin_usage": {errors.FORBIDDEN},
        "admin_peers": {errors.FORBIDDEN},
    }
    everywhere = {
        errors.INVALID_PARAMS,
        errors.INTERNAL_ERROR,
        errors.NOT_READY,
        errors.RATE_LIMITED,
        errors.UNREADABLE,
    }
    for method in describe()["methods"]:
        assert {error["code"] for error in method["errors"]} == everywhere | own.get(method["name"], set())


def test_schemas_are_sound_and_refer_only_to_each_other() -> None:
    document = describe()
    for schema in document["components"]["schemas"].values():
        Draft7Validator.check_schema(schema)
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for item in value.values() for found in references(item)]
    return [found for item in value for found in references(item)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("Account", {"balance": 1}),
        ("Account", {"balance": "1", "nonce": 0}),
        ("Account", {"balance": 1, "nonce": 0, "x": 1}),
    ],
)
def test_schemas_refuse_what_is_not_the_record(name: str, bad: dict[str, Any]) -> None:
    document = describe()
    assert not resolved(document["components"]["schemas"][name], document).is_valid(bad)
