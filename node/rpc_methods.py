"""Every method of the JSON-RPC: one table, from which the server and the OpenRPC document are made."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import Any, Final

import msgspec

from abci_app import records, tables
from abci_app.errors import CODE_OK
from abci_app.params import Params
from abci_app.rules.deals import is_overdue
from abci_app.transactions import MAX_TX_BYTES, tx_hash
from node import rpc_types as rpc
from node.chain import from_base64
from node.context import NodeContext
from node.errors import FORBIDDEN, INVALID_PARAMS, INVALID_REQUEST, MEMPOOL_FULL, RpcError
from node.follower import tx_status
from node.rpc_types import Answer, Page
from primitives.blobs import ServiceSet
from primitives.hashing import HASH_BYTES, sha256
from primitives.keys import ADDRESS_BYTES

MAX_WAIT_S: Final = 20.0
Handler = Callable[[NodeContext, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table."""

    name: str
    params: type[msgspec.Struct]
    result: Any
    """A type that node.jsonform knows."""
    summary: str
    handler: Handler
    loopback_only: bool = False
    own_errors: tuple[int, ...] = ()
    """Error codes that not every method has."""


METHODS: Final[dict[str, Method]] = {}


def _method(
    name: str,
    params: type[msgspec.Struct],
    result: Any,
    *,
    loopback_only: bool = False,
    own_errors: tuple[int, ...] = (),
) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        summary = " ".join((handler.__doc__ or "").split())
        METHODS[name] = Method(name, params, result, summary, handler, loopback_only, own_errors)
        return handler

    return register


# --- node and chain -----------------------------------------------------------------------------------------------
@_method("node_status", rpc.NoParams, rpc.NodeStatus)
async def node_status(node: NodeContext, params: rpc.NoParams) -> rpc.NodeStatus:
    """Who this node is and where it stands."""
    status = await node.engine.call("status")
    peers = await node.engine.call("net_info")
    info = await node.engine.call("abci_info")
    sync = status["sync_info"]
    return rpc.NodeStatus(
        chain_id=node.chain_id,
        version=package_version("outerstep"),
        engine_version=status["node_info"]["version"],
        moniker=node.identity.moniker,
        node_id=status["node_info"]["id"],
        operator=node.identity.operator,
        service_key=node.identity.service_key,
        url=node.identity.url,
        height=int(info["response"].get("last_block_height") or 0),
        app_hash=from_base64(info["response"].get("last_block_app_hash")),
        block_time=sync["latest_block_time"],
        catching_up=bool(sync["catching_up"]),
        num_peers=int(peers["n_peers"]),
        voting_power=int(status["validator_info"]["voting_power"]),
    )


@_method("chain_getHeight", rpc.WaitHeightParams, rpc.HeightAnswer)
async def chain_get_height(node: NodeContext, params: rpc.WaitHeightParams) -> rpc.HeightAnswer:
    """Last committed height; waits for `at_least`, up to `wait_s` seconds."""
    follower = node.follower
    if params.wait_s > 0 and follower.height < params.at_least:
        await follower.wait_for_height(params.at_least, min(params.wait_s, MAX_WAIT_S))
    return rpc.HeightAnswer(height=follower.height or await node.engine.committed_height())


@_method("chain_getBlock", rpc.HeightParams, rpc.BlockInfo | None)
async def chain_get_block(node: NodeContext, params: rpc.HeightParams) -> rpc.BlockInfo | None:
    """Header data and transaction hashes of a block; null while there is no such height, or when it is not held any
    more."""
    _check_height(params.height)
    height = params.height or node.follower.height
    if not height:
        return None
    answer = await node.engine.block(height)
    if answer is None:
        return None
    header = answer["block"]["header"]
    txs = answer["block"]["data"].get("txs") or ()
    return rpc.BlockInfo(
        height=int(header["height"]),
        hash=bytes.fromhex(answer["block_id"]["hash"]),
        time=header["time"],
        proposer=header["proposer_address"].lower(),
        app_hash=bytes.fromhex(header["app_hash"]),
        tx_hashes=tuple(sha256(from_base64(tx)) for tx in txs),
    )


@_method("chain_getValidators", rpc.HeightParams, rpc.ValidatorsAnswer | None)
async def chain_get_validators(node: NodeContext, params: rpc.HeightParams) -> rpc.ValidatorsAnswer | None:
    """CometBFT's validator set at a height, with each one's operator; null as for chain_getBlock."""
    _check_height(params.height)
    if params.height is not None and params.height > await node.engine.committed_height():
        return None
    answer = await node.engine.validators(params.height)
    if answer is None:
        return None
    height, entries = answer
    operators = {v.consensus_key: v.operator for v in await node.state.all(tables.VALIDATORS)}
    keys = [from_base64(entry["pub_key"]["value"]) for entry in entries]
    found = tuple(
        rpc.ValidatorInfo(consensus_key=key, power=int(entry["voting_power"]), operator=operators.get(key))
        for key, entry in zip(keys, entries, strict=True)
    )
    return rpc.ValidatorsAnswer(height=height, validators=found)


# --- transactions -------------------------------------------------------------------------------------------------
@_method("tx_broadcast", rpc.BroadcastParams, rpc.BroadcastAnswer, own_errors=(MEMPOOL_FULL,))
async def tx_broadcast(node: NodeContext, params: rpc.BroadcastParams) -> rpc.BroadcastAnswer:
    """Hand a signed transaction to the mempool. The hash comes back in any case; sending the same bytes again is
    harmless. With `wait` the answer comes once it is in a block, or after `timeout_s` with height 0."""
    if not 0 < len(params.tx) <= MAX_TX_BYTES:
        raise RpcError(INVALID_PARAMS, f"tx has {len(params.tx)} bytes; it should have 1 to {MAX_TX_BYTES}")
    hash_ = tx_hash(params.tx)
    known = node.follower.transaction(hash_)
    if known is not None and known.code == CODE_OK:
        return rpc.BroadcastAnswer(hash=hash_, code=known.code, log=known.log, height=known.height)
    code, log = await node.engine.broadcast(params.tx)
    if code != CODE_OK:
        return rpc.BroadcastAnswer(hash=hash_, code=code, log=log)
    node.note_accepted(hash_, params.tx)
    if params.wait:
        status = await tx_get(node, rpc.TxParams(hash=hash_, wait_s=params.timeout_s))
        if status.status == "committed":
            return rpc.BroadcastAnswer(hash=hash_, code=status.code, log=status.log, height=status.height)
    return rpc.BroadcastAnswer(hash=hash_, code=CODE_OK, log=log)


@_method("tx_get", rpc.TxParams, rpc.TxStatus)
async def tx_get(node: NodeContext, params: rpc.TxParams) -> rpc.TxStatus:
    """Where a transaction stands; waits for its block, up to `wait_s` seconds."""
    _check_bytes("hash", params.hash, HASH_BYTES)
    follower = node.follower
    status = follower.transaction(params.hash) or await _older_tx(node, params.hash)
    if status is None and params.wait_s > 0:
        await follower.wait_for(lambda: follower.transaction(params.hash) is not None, min(params.wait_s, MAX_WAIT_S))
        status = follower.transaction(params.hash)
    if status is not None:
        return status
    valid_until, first = node.accepted.get(params.hash), await node.engine.first_height()
    if valid_until is None:
        return rpc.TxStatus(hash=params.hash, status="unknown", first_height=first)
    over = valid_until and follower.height > valid_until
    return rpc.TxStatus(hash=params.hash, status="expired" if over else "pending", first_height=first)


async def _older_tx(node: NodeContext, hash_: bytes) -> rpc.TxStatus | None:
    """Out of CometBFT's index."""
    found = await node.engine.tx(hash_)
    if found is None:
        return None
    return tx_status(hash_, int(found["height"]), int(found["index"]), found["tx_result"])


# --- single records -----------------------------------------------------------------------------------------------
@_method("state_get", rpc.StateParams, rpc.StateValue)
async def state_get(node: NodeContext, params: rpc.StateParams) -> rpc.StateValue:
    """Raw value under a raw key of the state (docs/protocol.md names the keys)."""
    if not 0 < len(params.key) <= 256:
        raise RpcError(INVALID_PARAMS, f"key has {len(params.key)} bytes; it should have 1 to 256")
    stored = await node.state.read(params.key, prove=params.prove)
    return rpc.StateValue(value=stored.value, height=stored.height, proof=stored.proof)


@_method("params_get", rpc.ProveParams, Answer[Params])
async def params_get(node: NodeContext, params: rpc.ProveParams) -> Answer[Params]:
    """The chain's parameters."""
    return await node.answer(tables.PARAMS, prove=params.prove)


@_method("counters_get", rpc.ProveParams, Answer[records.Counters])
async def counters_get(node: NodeContext, params: rpc.ProveParams) -> Answer[records.Counters]:
    """Chain-wide numbers: next ids, supply, burned."""
    return await node.answer(tables.COUNTERS, prove=params.prove)


@_method("account_get", rpc.AddressParams, Answer[records.Account])
async def account_get(node: NodeContext, params: rpc.AddressParams) -> Answer[records.Account]:
    """Balance and nonce of an account."""
    _check_bytes("address", params.address, ADDRESS_BYTES)
    return await node.answer(tables.ACCOUNTS, params.address, prove=params.prove)


@_method("validator_get", rpc.AddressParams, Answer[records.Validator])
async def validator_get(node: NodeContext, params: rpc.AddressParams) -> Answer[records.Validator]:
    """A validator by its operator."""
    _check_bytes("address", params.address, ADDRESS_BYTES)
    return await node.answer(tables.VALIDATORS, params.address, prove=params.prove)


@_method("worker_get", rpc.AddressParams, Answer[records.Worker])
async def worker_get(node: NodeContext, params: rpc.AddressParams) -> Answer[records.Worker]:
    """A registered worker."""
    _check_bytes("address", params.address, ADDRESS_BYTES)
    return await node.answer(tables.WORKERS, params.address, prove=params.prove)


@_method("service_set_get", rpc.ServiceSetParams, Answer[ServiceSet])
async def service_set_get(node: NodeContext, params: rpc.ServiceSetParams) -> Answer[ServiceSet]:
    """Members with stake, keys and addresses of their services; the newest set without `version`."""
    set_version = params.version
    if set_version is None:
        counters = await node.state.get(tables.COUNTERS) or records.Counters()
        set_version = counters.set_version
    return await node.answer(tables.SERVICE_SETS, _id("version", set_version), prove=params.prove)


@_method("job_get", rpc.JobParams, Answer[records.Job])
async def job_get(node: NodeContext, params: rpc.JobParams) -> Answer[records.Job]:
    """A job by its id."""
    return await node.answer(tables.JOBS, _id("job_id", params.job_id), prove=params.prove)


@_method("round_get", rpc.RoundParams, Answer[records.Round])
async def round_get(node: NodeContext, params: rpc.RoundParams) -> Answer[records.Round]:
    """A round of a job; the open one, else the latest, without `round_index`."""
    job_id, index = _id("job_id", params.job_id), params.round_index
    if index is None:
        job = await node.state.get(tables.JOBS, job_id)
        index = -1 if job is None else job.open_round if job.open_round >= 0 else job.next_round - 1
        if index < 0:
            return Answer(record=None, height=node.follower.height)
    return await node.answer(tables.ROUNDS, job_id, _id("round_index", index), prove=params.prove)


@_method("settlement_get", rpc.SettlementParams, Answer[records.Settlement])
async def settlement_get(node: NodeContext, params: rpc.SettlementParams) -> Answer[records.Settlement]:
    """How a round was settled; null for void and open rounds."""
    parts = _id("job_id", params.job_id), _id("round_index", params.round_index)
    return await node.answer(tables.SETTLEMENTS, *parts, prove=params.prove)


@_method("da_getBlob", rpc.BlobParams, Answer[records.Blob])
async def da_get_blob(node: NodeContext, params: rpc.BlobParams) -> Answer[records.Blob]:
    """A certified blob: with `publisher` and `namespace` that record, else the one of this commitment that lasts
    longest. Its rows are served under /da/v1."""
    _check_bytes("commitment", params.commitment, HASH_BYTES)
    if params.publisher is not None and params.namespace is not None:
        _check_bytes("publisher", params.publisher, ADDRESS_BYTES)
        parts = params.commitment, params.publisher, sha256(params.namespace.encode())
        return await node.answer(tables.BLOBS, *parts, prove=params.prove)
    if params.prove:
        raise RpcError(INVALID_PARAMS, "prove needs publisher and namespace, since several records may exist")
    page = await node.page(tables.BLOBS, params.commitment, cursor=None, limit=100)
    longest = max(page.items, key=lambda blob: blob.expiry_height, default=None)
    return Answer(record=longest, height=page.height)


@_method("storage_getDeal", rpc.DealParams, Answer[records.Deal])
async def storage_get_deal(node: NodeContext, params: rpc.DealParams) -> Answer[records.Deal]:
    """A storage deal by its id."""
    return await node.answer(tables.DEALS, _id("deal_id", params.deal_id), prove=params.prove)


# --- lists --------------------------------------------------------------------------------------------------------
@_method("validator_list", rpc.ListParams, Page[records.Validator])
async def validator_list(node: NodeContext, params: rpc.ListParams) -> Page[records.Validator]:
    """All validators of the state, by operator."""
    return await node.page(tables.VALIDATORS, cursor=params.cursor, limit=params.limit)


@_method("job_list", rpc.ListParams, Page[records.Job])
async def job_list(node: NodeContext, params: rpc.ListParams) -> Page[records.Job]:
    """All jobs, by id."""
    return await node.page(tables.JOBS, cursor=params.cursor, limit=params.limit)


@_method("member_list", rpc.JobListParams, Page[records.Member])
async def member_list(node: NodeContext, params: rpc.JobListParams) -> Page[records.Member]:
    """Members of a job, by address."""
    job_id = _id("job_id", params.job_id)
    return await node.page(tables.MEMBERS, job_id, cursor=params.cursor, limit=params.limit)


@_method("round_list", rpc.JobListParams, Page[records.Round])
async def round_list(node: NodeContext, params: rpc.JobListParams) -> Page[records.Round]:
    """Rounds of a job, by index."""
    job_id = _id("job_id", params.job_id)
    return await node.page(tables.ROUNDS, job_id, cursor=params.cursor, limit=params.limit)


@_method("settlement_list", rpc.JobListParams, Page[records.Settlement])
async def settlement_list(node: NodeContext, params: rpc.JobListParams) -> Page[records.Settlement]:
    """Settlements of a job, by round."""
    job_id = _id("job_id", params.job_id)
    return await node.page(tables.SETTLEMENTS, job_id, cursor=params.cursor, limit=params.limit)


@_method("submission_list", rpc.RoundListParams, Page[records.Submission])
async def submission_list(node: NodeContext, params: rpc.RoundListParams) -> Page[records.Submission]:
    """Submissions of a round, by worker."""
    parts = _id("job_id", params.job_id), _id("round_index", params.round_index)
    return await node.page(tables.SUBMISSIONS, *parts, cursor=params.cursor, limit=params.limit)


@_method("score_list", rpc.RoundListParams, Page[records.ScoreSheet])
async def score_list(node: NodeContext, params: rpc.RoundListParams) -> Page[records.ScoreSheet]:
    """Scores and attestations of a round, by scorer."""
    parts = _id("job_id", params.job_id), _id("round_index", params.round_index)
    return await node.page(tables.SCORE_SHEETS, *parts, cursor=params.cursor, limit=params.limit)


@_method("storage_listDeals", rpc.DealListParams, Page[records.Deal])
async def storage_list_deals(node: NodeContext, params: rpc.DealListParams) -> Page[records.Deal]:
    """Storage deals that match every filter given, by id. Pending and active are those that still live."""
    height = node.follower.height

    def wanted(deal: records.Deal) -> bool:
        return (
            params.owner in (None, deal.owner)
            and params.series in (None, deal.series)
            and (params.status is None or (params.status == deal.status and not is_overdue(deal, height)))
            and (params.provider is None or params.provider in deal.providers)
        )

    return await node.page(tables.DEALS, cursor=params.cursor, limit=params.limit, keep=wanted)


# --- for the node's own people ------------------------------------------------------------------------------------
@_method("admin_usage", rpc.NoParams, dict[str, int], loopback_only=True, own_errors=(FORBIDDEN,))
async def admin_usage(node: NodeContext, params: rpc.NoParams) -> dict[str, int]:
    """Bytes on this node's disk, and their budgets. From this machine only."""
    return node.usage()


@_method("admin_peers", rpc.NoParams, tuple[rpc.Peer, ...], loopback_only=True, own_errors=(FORBIDDEN,))
async def admin_peers(node: NodeContext, params: rpc.NoParams) -> tuple[rpc.Peer, ...]:
    """Nodes that this one is connected with. From this machine only."""
    answer = await node.engine.call("net_info")
    return tuple(
        rpc.Peer(
            node_id=peer["node_info"]["id"],
            moniker=peer["node_info"]["moniker"],
            address=peer["remote_ip"],
            outbound=bool(peer["is_outbound"]),
        )
        for peer in answer.get("peers") or ()
    )


# --- over the WebSocket -------------------------------------------------------------------------------------------
@_method("subscribe", rpc.SubscribeParams, int, own_errors=(INVALID_REQUEST,))
async def subscribe(node: NodeContext, params: rpc.SubscribeParams) -> int:
    """WebSocket only: have events of a topic sent as notifications `subscription` {subscription, event}; the result
    is the number of the subscription."""
    raise RpcError(INVALID_REQUEST, "subscriptions need a WebSocket; connect to /ws")


@_method("unsubscribe", rpc.UnsubscribeParams, bool, own_errors=(INVALID_REQUEST,))
async def unsubscribe(node: NodeContext, params: rpc.UnsubscribeParams) -> bool:
    """WebSocket only: end a subscription; false when there is none of this number."""
    raise RpcError(INVALID_REQUEST, "subscriptions need a WebSocket; connect to /ws")


def check_allowed(method: Method, *, from_loopback: bool) -> None:
    """Raises: RpcError FORBIDDEN."""
    if method.loopback_only and not from_loopback:
        raise RpcError(FORBIDDEN, f"{method.name} answers to callers on the node's own machine only")


def _check_bytes(name: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise RpcError(INVALID_PARAMS, f"{name} has {len(value)} bytes; it should have {size}")


def _check_height(height: int | None) -> None:
    if height is not None and not 1 <= height < 2**63:
        raise RpcError(INVALID_PARAMS, f"height is {height}; it should be 1 or more")


def _id(name: str, value: int) -> int:
    if not 0 <= value < 2**63:
        raise RpcError(INVALID_PARAMS, f"{name} is {value}; it should be 0 or more")
    return value
