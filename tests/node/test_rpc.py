"""JSON-RPC 2.0 over real sockets: protocol, limits, lists, subscriptions; hostile bodies get an error, never a 500."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abci_app import tables
from abci_app.messages import CreateJob, JobTerms, Transfer
from abci_app.records import Deal
from abci_app.state import Branch
from node import errors, rate, rpc_http
from node.client import Client
from node.errors import RpcError
from node.openrpc import describe
from node.rate import RateLimiter
from node.rpc_types import BlockEvent
from primitives.keys import format_address
from tests.node.conftest import ALICE, BOB, CHAIN_ID, LIMITS, Served
from tests.node.test_openrpc import PARAMS

STATUS = {"jsonrpc": "2.0", "id": 1, "method": "node_status"}


class Caller:
    """Raw bodies to one node."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        async with self.session.post(f"{self.url}/rpc", data=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def call(self, document: Any, **headers: str) -> Any:
        _, answer = await self.post(json.dumps(document).encode(), **headers)
        return answer

    async def code(self, method: str, params: Any, **headers: str) -> int:
        answer = await self.call({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, **headers)
        return int(answer["error"]["code"])


@pytest.fixture
async def caller(served: Served) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as session:
        yield Caller(session, served.url)


# --- protocol -----------------------------------------------------------------------------------------------------
async def test_single_call_is_answered_with_its_id(caller: Caller) -> None:
    for id_ in (1, "a", None, 1.5):
        answer = await caller.call({**STATUS, "id": id_})
        assert answer["id"] == id_
        assert answer["result"]["chain_id"] == CHAIN_ID


async def test_parameters_by_name_and_by_position_mean_the_same(caller: Caller) -> None:
    address = format_address(ALICE.address)
    call = {"jsonrpc": "2.0", "id": 1, "method": "account_get"}
    by_name = await caller.call({**call, "params": {"address": address}})
    by_position = await caller.call({**call, "params": [address]})
    in_hex = await caller.call({**call, "params": [ALICE.address.hex()]})
    assert by_name == by_position == in_hex
    assert by_name["result"]["record"] == {"balance": 10**12, "nonce": 0}


async def test_batch_is_answered_call_by_call_and_notifications_are_not(caller: Caller) -> None:
    answers = await caller.call(
        [{**STATUS, "id": "x"}, {"jsonrpc": "2.0", "method": "node_status"}, 5, {**STATUS, "method": "nope", "id": 2}]
    )
    assert [answer["id"] for answer in answers] == ["x", None, 2]
    assert [answer.get("error", {}).get("code") for answer in answers] == [
        None,
        errors.INVALID_REQUEST,
        errors.METHOD_NOT_FOUND,
    ]


async def test_notifications_alone_get_no_body(caller: Caller) -> None:
    note = {"jsonrpc": "2.0", "method": "node_status"}
    assert await caller.post(json.dumps(note).encode()) == (204, None)
    assert await caller.post(json.dumps([note, note]).encode()) == (204, None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", errors.PARSE_ERROR),
        (b"{", errors.PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "node_status"}', errors.PARSE_ERROR),
        (b'"\xff"', errors.PARSE_ERROR),
        (b"[" * 30_000, errors.PARSE_ERROR),
        (b'{"a":' * 5_000, errors.PARSE_ERROR),
        (b"1" * 5_000, errors.PARSE_ERROR),
        (b"[]", errors.INVALID_REQUEST),
        (b"5", errors.INVALID_REQUEST),
        (b"{}", errors.INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "node_status"}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": true, "method": "node_status"}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1e999, "method": "node_status"}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "node_status"}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "node_status", "params": 5}', errors.INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', errors.METHOD_NOT_FOUND),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "node_status", "params": [1]}', errors.INVALID_PARAMS),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "node_status", "params": {"x": 1}}', errors.INVALID_PARAMS),
    ],
)
async def test_malformed_body_gets_the_standard_code(caller: Caller, body: bytes, code: int) -> None:
    status, answer = await caller.post(body)
    assert status == 200
    assert answer["error"]["code"] == code


async def test_limits_on_body_and_batch_are_said(caller: Caller) -> None:
    status, answer = await caller.post(b" " * (LIMITS.body_kib * 1024 + 1))
    assert (status, answer["error"]["code"]) == (413, errors.INVALID_REQUEST)
    at_limit = await caller.call([STATUS] * LIMITS.batch)
    assert len(at_limit) == LIMITS.batch
    beyond = await caller.call([STATUS] * (LIMITS.batch + 1))
    assert beyond["error"]["code"] == errors.INVALID_REQUEST


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("account_get", {"address": "01"}),
        ("account_get", {"address": "outer1xyz"}),
        ("account_get", {}),
        ("job_get", {"job_id": -1}),
        ("job_get", {"job_id": True}),
        ("job_get", {"job_id": 2**63}),
        ("job_get", {"job_id": 1.0}),
        ("tx_get", {"hash": "00"}),
        ("tx_get", {"hash": "00" * 32, "wait_s": "1"}),
        ("tx_broadcast", {"tx": ""}),
        ("state_get", {"key": ""}),
        ("job_list", {"limit": 0}),
        ("job_list", {"cursor": "!"}),
        ("job_list", {"cursor": "é"}),
        ("job_list", {"cursor": "YWNjb3VudC8="}),
        ("chain_getValidators", {"height": 0}),
        ("chain_getValidators", {"height": -1}),
        ("chain_getValidators", {"height": 2**63}),
        ("chain_getBlock", {"height": 0}),
        ("chain_getBlock", {"height": -1}),
        ("chain_getBlock", {"height": 2**63}),
        ("chain_getBlock", {"height": "1"}),
        ("da_getBlob", {"commitment": "00" * 32, "prove": True}),
        ("da_getBlob", {"commitment": "00" * 32, "publisher": "00" * 20, "namespace": "\ud800"}),
        ("storage_listDeals", {"status": "nonsense"}),
    ],
)
async def test_wrong_parameters_are_refused_as_such(caller: Caller, method: str, params: dict[str, Any]) -> None:
    assert await caller.code(method, params) == errors.INVALID_PARAMS


raw_bodies = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
).map(lambda value: json.dumps(value).encode())
calls = st.builds(
    lambda method, params: json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).encode(),
    st.sampled_from(
        ["account_get", "job_list", "tx_get", "tx_broadcast", "storage_listDeals", "state_get", "subscribe"]
    ),
    st.dictionaries(
        st.sampled_from(["address", "cursor", "limit", "hash", "tx", "key", "series", "topic", "prove"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("00" * 32),
    ),
)


async def test_no_body_makes_the_server_fail(served: Served, caller: Caller) -> None:
    loop = asyncio.get_running_loop()
    bodies: list[bytes] = []

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
    @given(raw_bodies | calls)
    def collect(body: bytes) -> None:
        bodies.append(body)

    await loop.run_in_executor(None, collect)
    for body in bodies:
        status, answer = await caller.post(body)
        assert status in (200, 204), (body, answer)
    assert (await caller.call(STATUS))["result"]["height"] == served.engine.height


# --- who may call -------------------------------------------------------------------------------------------------
async def test_admin_calls_answer_this_machine_only(caller: Caller) -> None:
    assert (await caller.call({**STATUS, "method": "admin_usage"}))["result"] == {"da": 1, "storage": 2}
    assert (await caller.call({**STATUS, "method": "admin_peers"}))["result"][0]["moniker"] == "other"
    for name in rpc_http.PROXY_HEADERS:
        header = {name: "1.2.3.4"}
        assert await caller.code("admin_usage", {}, **header) == errors.FORBIDDEN


@pytest.mark.parametrize(
    ("address", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False), ("", False), ("localhost", False)],
)
def test_loopback_addresses_are_known(address: str, own: bool) -> None:
    assert rpc_http.is_loopback(address) is own


def test_rate_limit_lets_bursts_through_and_recovers() -> None:
    now = 0.0
    limiter = RateLimiter(2, 3, lambda: now)
    assert [limiter.take("a") for _ in range(4)] == [True, True, True, False]
    assert limiter.take("b")
    now = 0.5
    assert [limiter.take("a") for _ in range(2)] == [True, False]


async def test_call_beyond_the_rate_is_refused(served: Served, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_http, "is_loopback", lambda _: False)
    burst = served.node.config.limits.calls_burst
    monkeypatch.setattr(rpc_http.RateLimiter, "take", RateLimiter(1, burst, lambda: 0.0).take)
    whole, rest = divmod(burst, LIMITS.batch)
    for size in [LIMITS.batch] * whole + ([rest] if rest else []):
        answers = await caller.call([{**STATUS, "method": "nope"}] * size)
        assert {answer["error"]["code"] for answer in answers} == {errors.METHOD_NOT_FOUND}
    assert await caller.code("nope", {}) == errors.RATE_LIMITED


async def test_each_call_of_a_batch_and_of_a_socket_counts_against_the_rate(
    served: Served, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_http, "is_loopback", lambda _: False)
    monkeypatch.setattr(rpc_http.RateLimiter, "take", RateLimiter(0.001, 3, lambda: 0.0).take)
    first = await caller.call([{**STATUS, "method": "chain_getHeight"}] * 4)
    assert [answer.get("error", {}).get("code") for answer in first] == [None, None, None, errors.RATE_LIMITED]
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_json(STATUS)
        assert (await socket.receive_json(timeout=5))["error"]["code"] == errors.RATE_LIMITED


def test_rate_limiter_remembers_a_bounded_number_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "MAX_ADDRESSES", 2)
    limiter = RateLimiter(1, 1, lambda: 0.0)
    assert [limiter.take(address) for address in "abab"] == [True, True, False, False]
    assert limiter.take("c")
    assert len(limiter._buckets) == 2
    assert not limiter.take("b")


async def test_body_that_does_not_come_is_given_up(
    served: Served, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_http, "BODY_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
    writer.write(b"POST /rpc HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n{")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    assert "result" in await caller.call(STATUS)


async def test_body_whose_length_is_not_announced_is_cut_at_the_limit(caller: Caller) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(LIMITS.body_kib + 1):
            yield b" " * 1024

    async with caller.session.post(f"{caller.url}/rpc", data=pieces()) as response:
        assert response.status == 413


async def test_message_too_large_for_the_socket_ends_that_connection_alone(served: Served, caller: Caller) -> None:
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_bytes(bytes(LIMITS.body_kib * 1024 + 1))
        message = await socket.receive(timeout=5)
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert message.data == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_json(STATUS)
        assert "result" in await socket.receive_json(timeout=5)


async def test_engine_that_is_down_is_reported_as_not_ready(served: Served, caller: Caller) -> None:
    served.engine.down = True
    assert await caller.code("node_status", {}) == errors.NOT_READY
    served.engine.down = False
    assert "result" in await caller.call(STATUS)


async def test_a_call_that_fails_unexpectedly_is_an_internal_error_of_that_call_alone(
    served: Served, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    served.engine.odd["net_info"] = {"neither": "peers nor their number"}
    good = {**STATUS, "id": 2, "method": "chain_getHeight"}
    assert await caller.code("node_status", {}) == errors.INTERNAL_ERROR
    bad, fine = await caller.call([STATUS, good])
    assert (bad["id"], bad["error"]["code"]) == (1, errors.INTERNAL_ERROR)
    assert "n_peers" not in bad["error"]["message"]
    assert fine == {"jsonrpc": "2.0", "id": 2, "result": {"height": 1}}
    assert await caller.call([{"jsonrpc": "2.0", "method": "node_status"}, good]) == [fine]
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_json(STATUS)
        assert (await socket.receive_json(timeout=5))["error"]["code"] == errors.INTERNAL_ERROR
        await socket.send_json(good)
        assert await socket.receive_json(timeout=5) == fine
    assert "KeyError: 'n_peers'" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("shape", [None, [], "text", 5, {"response": None}, {"response": {"value": "!", "height": []}}])
async def test_an_engine_that_answers_anything_never_ends_a_call_without_json(
    served: Served, caller: Caller, shape: Any
) -> None:
    for method in ("status", "net_info", "abci_info", "abci_query", "block", "validators", "tx", "broadcast_tx_sync"):
        served.engine.odd[method] = shape
    listed = {method["name"]: {e["code"] for e in method["errors"]} for method in describe()["methods"]}
    for name, all_params in PARAMS.items():
        params = all_params[0]
        answer = await caller.call({**STATUS, "method": name, "params": params})
        assert "result" in answer or answer["error"]["code"] in listed[name], (name, answer)


async def test_heights_that_are_not_there_are_null_in_both_methods(served: Served, caller: Caller) -> None:
    for method in ("chain_getBlock", "chain_getValidators"):
        for height in (2, 99, 2**63 - 1):
            answer = await caller.call({**STATUS, "method": method, "params": {"height": height}})
            assert answer["result"] is None, method
    served.engine.errors = {
        "block": "height 1 is not available, lowest height is 7",
        "validators": "could not find validator set for height #1",
    }
    for method in ("chain_getBlock", "chain_getValidators"):
        assert (await caller.call({**STATUS, "method": method, "params": {"height": 1}}))["result"] is None


async def test_words_of_the_engine_are_logged_and_not_passed_on(
    served: Served, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    served.engine.errors = dict.fromkeys(["block", "validators", "abci_query", "broadcast_tx_sync"], "SECRET: EOF")
    calls = {"chain_getBlock": {"height": 1}, "chain_getValidators": {}, "params_get": {}, "tx_broadcast": {"tx": "00"}}
    for method, params in calls.items():
        answer = await caller.call({**STATUS, "method": method, "params": params})
        assert answer["error"]["code"] == errors.NOT_READY
        assert "SECRET" not in answer["error"]["message"]
        assert f"{method}: " in caplog.text
    assert caplog.text.count("SECRET: EOF") == len(calls)


async def test_health_and_metrics(served: Served, caller: Caller) -> None:
    async with caller.session.get(f"{served.url}/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok", "height": 1})
    await caller.call({**STATUS, "method": "x" * 100})
    async with caller.session.get(f"{served.url}/metrics") as response:
        assert response.content_type == "text/plain"
        text = await response.text()
    assert 'outerstep_rpc_calls_total{code="-32601",method="unknown"}' in text


# --- transactions -------------------------------------------------------------------------------------------------
async def test_transaction_is_unknown_then_pending_then_committed(served: Served, client: Client) -> None:
    signed = await client.build([Transfer(to=BOB.address, amount=1)])
    assert (await client.tx(signed.hash)).status == "unknown"
    assert (await client.broadcast(signed.data)).hash == signed.hash
    assert (await client.tx(signed.hash)).status == "pending"
    height = served.engine.deliver()
    status = await client.tx(signed.hash, wait_s=5)
    assert (status.status, status.height, status.code, status.work_used) == ("committed", height, 0, 200)


async def test_broadcast_with_wait_answers_with_the_height(served: Served, client: Client, caller: Caller) -> None:
    signed = await client.build([Transfer(to=BOB.address, amount=1)])
    params = {"tx": signed.data.hex(), "wait": True, "timeout_s": 10}
    waiting = asyncio.create_task(caller.call({**STATUS, "method": "tx_broadcast", "params": params}))
    async with asyncio.timeout(5):
        while not served.engine.mempool:
            await asyncio.sleep(0.01)
    height = served.engine.deliver()
    result = (await waiting)["result"]
    assert (result["hash"], result["height"]) == (signed.hash.hex(), height)
    late = (await caller.call({**STATUS, "method": "tx_broadcast", "params": {**params, "timeout_s": 0}}))["result"]
    assert late["height"] == height


async def test_full_mempool_has_a_code_of_its_own(served: Served, client: Client) -> None:
    """FAULTS C10."""
    served.engine.mempool_full = True
    signed = await client.build([Transfer(to=BOB.address, amount=1)])
    with pytest.raises(RpcError, match="mempool is full") as failure:
        await client.broadcast(signed.data)
    assert failure.value.code == errors.MEMPOOL_FULL


async def test_garbage_transactions_are_refused_with_a_code(client: Client) -> None:
    assert (await client.broadcast(b"garbage")).code == 2


async def test_transaction_older_than_the_index_in_memory_is_found(served: Served, client: Client) -> None:
    signed = await client.build([Transfer(to=BOB.address, amount=1)])
    served.engine.deliver([signed.data])
    await client.tx(signed.hash, wait_s=5)
    served.node.follower._transactions.clear()
    assert (await client.tx(signed.hash)).status == "committed"


# --- lists --------------------------------------------------------------------------------------------------------
def put_deals(served: Served, count: int, *, end_height: int = 10**6) -> int:
    """Deals 1..count straight into the state: every third one is Bob's and active. Returns the height of the block."""

    def put(branch: Branch) -> None:
        for number in range(1, count + 1):
            tables.DEALS.put(branch, deal(number), number)

    def deal(number: int) -> Deal:
        bobs = number % 3 == 0
        return Deal(
            id=number,
            owner=(BOB if bobs else ALICE).address,
            key=b"k" * 32,
            root=b"r" * 32,
            size=1,
            tier="hot",
            series="s/1" if bobs else "",
            replicas=1,
            duration=1,
            providers=(BOB.address,) if bobs else (),
            status="active" if bobs else "expired",
            escrow=0,
            price_per_block=1,
            created_height=1,
            end_height=end_height,
        )

    return served.engine.deliver([], change=put)


async def test_pages_are_complete_in_order_and_without_repeats(served: Served, client: Client) -> None:
    """FAULTS C23."""
    put_deals(served, 25)
    pages, cursor = [], None
    while True:
        page = await client.deals(cursor=cursor, limit=10)
        pages.append([deal.id for deal in page.items])
        cursor = page.next
        if cursor is None:
            break
    assert pages == [list(range(1, 11)), list(range(11, 21)), list(range(21, 26))]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11])
async def test_exactly_full_and_empty_pages_end_the_list(served: Served, client: Client, count: int) -> None:
    """FAULTS C23."""
    put_deals(served, count)
    found = await client.every(lambda cursor: client.deals(cursor=cursor, limit=10))
    assert [deal.id for deal in found] == list(range(1, count + 1))


async def test_page_size_is_capped(served: Served, client: Client) -> None:
    """FAULTS C23."""
    put_deals(served, 501)
    page = await client.deals(limit=10_000)
    assert len(page.items) == 500
    assert [deal.id for deal in (await client.deals(limit=10_000, cursor=page.next)).items] == [501]


async def test_broad_filter_looks_at_a_bounded_part_at_a_time(served: Served, client: Client) -> None:
    """FAULTS C23."""
    put_deals(served, 1200)
    page = await client.deals(series="nobody's")
    assert page.items == ()
    assert page.next is not None
    everything = await client.every(
        lambda cursor: client.deals(
            owner=BOB.address, series="s/1", status="active", provider=BOB.address, cursor=cursor
        )
    )
    assert [deal.id for deal in everything] == list(range(3, 1201, 3))


async def test_a_deal_that_is_over_is_not_listed_as_active_even_before_its_record_says_so(
    served: Served, client: Client
) -> None:
    """A block ends a limited number of deals; the others follow."""
    end = put_deals(served, 3, end_height=1 + served.engine.height)
    await client.wait_for_height(end)
    assert [deal.id for deal in (await client.deals(status="active")).items] == [3]
    await client.wait_for_height(served.engine.deliver([]))
    assert (await client.deals(status="active")).items == ()
    assert (await client.deals(status="pending")).items == ()
    assert len((await client.deals()).items) == 3


async def test_validator_set_is_put_together_from_its_pages(client: Client) -> None:
    found = await client.engine_validators()
    assert found is not None
    assert len(found.validators) == 150


async def test_job_and_its_first_answers(served: Served, client: Client) -> None:
    terms = JobTerms(b"m", b"d" * 32, 5, b"g" * 32, 2, 1, 2, 10, 100, 1, 1, 1, 1, 1, ())
    sent = asyncio.create_task(client.send([CreateJob(key=b"k" * 32, terms=terms)]))
    async with asyncio.timeout(5):
        while not served.engine.mempool:
            await asyncio.sleep(0.01)
    served.engine.deliver()
    job_id = (await sent).ids[0]
    job = await client.job(job_id)
    assert job is not None
    assert (job.owner, job.terms) == (ALICE.address, terms)
    assert [item.id for item in (await client.jobs()).items] == [job_id]
    assert await client.round(job_id) is None
    assert await client.members(job_id) == []
    assert (await client.settlements(job_id)).items == ()
    assert await client.job(job_id + 1) is None


async def test_single_reads_of_things_that_are_not_there(client: Client) -> None:
    assert await client.deal(1) is None
    assert await client.blob(b"b" * 32) is None
    assert await client.settlement(1, 0) is None
    assert await client.worker(b"w" * 20) is None
    assert await client.block(99) is None
    assert await client.service_set(99) is None


async def test_genesis_validator_and_its_services_are_listed(served: Served, client: Client) -> None:
    (validator,) = await client.validators()
    assert validator == await client.validator(served.node.identity.operator)
    newest = await client.service_set()
    assert newest == await client.service_set(1)
    assert newest is not None
    assert newest.members[0].url == served.node.identity.url


# --- WebSocket ----------------------------------------------------------------------------------------------------
async def test_socket_answers_calls_and_sends_subscribed_events(served: Served, caller: Caller) -> None:
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_json(STATUS)
        assert (await socket.receive_json(timeout=5))["result"]["chain_id"] == CHAIN_ID
        await socket.send_str("{")
        assert (await socket.receive_json(timeout=5))["error"]["code"] == errors.PARSE_ERROR
        await socket.send_json({**STATUS, "method": "subscribe", "params": {"topic": "blocks"}})
        number = (await socket.receive_json(timeout=5))["result"]
        height = served.engine.deliver()
        note = await socket.receive_json(timeout=5)
        assert note["params"]["subscription"] == number
        assert note["params"]["event"]["height"] == height
        await socket.send_json({**STATUS, "method": "unsubscribe", "params": [number]})
        assert (await socket.receive_json(timeout=5))["result"] is True
        await socket.send_json({**STATUS, "method": "unsubscribe", "params": [number]})
        assert (await socket.receive_json(timeout=5))["result"] is False


async def test_client_gets_typed_events(served: Served, client: Client) -> None:
    events = client.subscribe("blocks")
    first = asyncio.create_task(anext(events))
    async with asyncio.timeout(5):
        while not served.node.follower.listeners:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    height = served.engine.deliver()
    event = await first
    assert isinstance(event, BlockEvent)
    assert event.height == height
    await events.aclose()


async def test_subscriptions_need_the_socket_and_have_a_limit(served: Served, caller: Caller) -> None:
    assert await caller.code("subscribe", {"topic": "blocks"}) == errors.INVALID_REQUEST
    call = {**STATUS, "method": "subscribe", "params": {"topic": "blocks"}}
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        for _ in range(rpc_http.MAX_SUBSCRIPTIONS):
            await socket.send_json(call)
            assert "result" in await socket.receive_json(timeout=5)
        await socket.send_json(call)
        assert "error" in await socket.receive_json(timeout=5)


async def test_connections_beyond_the_limit_are_refused(served: Served, caller: Caller) -> None:
    url = f"{served.url}/ws"
    open_sockets = [await caller.session.ws_connect(url) for _ in range(LIMITS.websockets)]
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await caller.session.ws_connect(url)
    for socket in open_sockets:
        await socket.close()
    async with asyncio.timeout(5), caller.session.ws_connect(url):
        pass


async def test_client_that_does_not_read_is_cut_off(
    served: Served, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller.session.ws_connect(f"{served.url}/ws") as socket:
        await socket.send_json({**STATUS, "method": "subscribe", "params": {"topic": "blocks"}})
        await socket.receive_json(timeout=5)
        event = BlockEvent(height=1, hash=b"h" * 32, time="t", num_txs=0)
        for _ in range(rpc_http.QUEUED_MESSAGES + 1):
            for listener in tuple(served.node.follower.listeners):
                listener("blocks", event)
        async with asyncio.timeout(5):
            while served.node.follower.listeners:
                await asyncio.sleep(0.01)
    assert (await caller.call(STATUS))["result"]["height"] == 1


# --- following ----------------------------------------------------------------------------------------------------
async def test_every_height_is_seen_once_and_in_order(served: Served, client: Client) -> None:
    seen: list[int] = []

    async def watch() -> None:
        async for height in client.blocks():
            seen.append(height)
            if len(seen) == 20:
                return

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.1)
    for number in range(20):
        served.engine.deliver([])
        if number == 10:
            served.engine.down = True
            await asyncio.sleep(0.3)
            served.engine.down = False
    async with asyncio.timeout(10):
        await watching
    assert seen == list(range(2, 22))


async def test_waiting_for_a_height_ends_with_it_or_with_the_time(served: Served, client: Client) -> None:
    with pytest.raises(TimeoutError):
        await client.wait_for_height(2, timeout_s=0.1)
    waiting = asyncio.create_task(client.wait_for_height(2, timeout_s=5))
    served.engine.deliver([])
    assert await waiting == 2
