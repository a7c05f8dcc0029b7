"""CometBFT's RPC as a double: real sockets and the real rules, blocks at the test's word, faults on demand."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from abci_app.block import BlockContext, Event, Receipt
from abci_app.execution import begin_block, end_block, execute_transaction, init_genesis
from abci_app.params import parse_genesis
from abci_app.queries import answer_query
from abci_app.server import abci_pb2 as pb
from abci_app.state import Branch
from abci_app.store import Store
from abci_app.transactions import tx_hash
from tests.abci_app.kit import check_transaction

TIME = "2026-01-01T00:00:00Z"


class EngineDouble:
    """One validator's chain over a real store. `deliver` makes a block of what waits."""

    def __init__(self, store: Store, app_state: bytes, chain_id: str) -> None:
        self.chain_id = chain_id
        self.store = store
        branch = Branch(store.committed)
        init_genesis(branch, parse_genesis(app_state))
        store.commit(store.prepare(1, branch.writes))
        self.app_hashes = [b"", store.committed.app_hash]
        """By height: the root of the state after it."""
        self.blocks: list[tuple[list[bytes], list[Receipt], list[Event]]] = [([], [], [])]
        self.mempool: list[bytes] = []
        self.seen: set[bytes] = set()
        self.mempool_full = False
        self.lose_answers = 0
        """So many broadcasts are taken in and their answers lost."""
        self.down = False
        self.first_held = 1
        """Lowest block that it has; above 1 as after a state sync."""
        self.app_lag = 0
        """Blocks that the application is behind."""
        self.odd: dict[str, Any] = {}
        """Method to a result of another form, which it answers instead."""
        self.errors: dict[str, str] = {}
        """Method to the text of an error, which it answers instead."""

    @property
    def height(self) -> int:
        return len(self.blocks)

    def drop_waiting(self) -> None:
        """What a restart of the engine does to its mempool."""
        self.mempool.clear()
        self.seen.clear()

    def deliver(self, txs: Sequence[bytes] | None = None, change: Callable[[Branch], None] = lambda _: None) -> int:
        """Make one block of `txs`, or of all that wait, with a `change` by hand; returns its height."""
        chosen = list(self.mempool if txs is None else txs)
        self.mempool = [tx for tx in self.mempool if tx not in chosen]
        block = BlockContext(chain_id=self.chain_id, height=self.height + 1, time_s=0)
        branch = Branch(self.store.committed)
        events = list(begin_block(branch, block, ()))
        receipts = [execute_transaction(branch, tx, block) for tx in chosen]
        events += end_block(branch, block).events
        change(branch)
        self.store.commit(self.store.prepare(block.height, branch.writes))
        self.app_hashes.append(self.store.committed.app_hash)
        self.blocks.append((chosen, receipts, events))
        self.seen -= {tx for tx, receipt in zip(chosen, receipts, strict=True) if receipt.code}
        return self.height

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/", self._post)
        return application

    async def _post(self, request: web.Request) -> web.StreamResponse:
        call = await request.json()
        if self.down:
            return web.Response(status=502, text="down")
        try:
            if call["method"] in self.errors:
                raise LookupError(self.errors[call["method"]])
            if call["method"] in self.odd:
                result = self.odd[call["method"]]
            else:
                result = getattr(self, f"_{call['method']}")(**call["params"])
        except LookupError as error:
            problem = {"code": -32603, "message": "Internal error", "data": str(error)}
            return web.json_response({"jsonrpc": "2.0", "id": call["id"], "error": problem})
        if call["method"] == "broadcast_tx_sync" and self.lose_answers:
            self.lose_answers -= 1
            return web.Response(status=502, text="lost")
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})

    def _abci_info(self) -> dict[str, Any]:
        return {"response": {"last_block_height": str(self.height), "last_block_app_hash": b64(self.app_hashes[-1])}}

    def _abci_query(self, path: str, data: str, prove: bool) -> dict[str, Any]:
        answer = answer_query(self.store, pb.RequestQuery(path=path.encode(), data=bytes.fromhex(data), prove=prove))
        operators = [{"type": op.type, "key": b64(op.key), "data": b64(op.data)} for op in answer.proof_ops.ops]
        response = {"code": answer.code, "log": answer.log, "height": str(answer.height), "value": b64(answer.value)}
        return {"response": {**response, "proofOps": {"ops": operators}}}

    def _broadcast_tx_sync(self, tx: str) -> dict[str, Any]:
        raw = base64.b64decode(tx)
        if raw in self.seen:
            raise LookupError("tx already exists in cache")
        if self.mempool_full:
            raise LookupError("mempool is full: number of txs 5000 (max: 5000)")
        receipt = check_transaction(
            self.store.committed, raw, chain_id=self.chain_id, height=self.height + 1, recheck=False
        )
        if receipt.code == 0:
            self.mempool.append(raw)
            self.seen.add(raw)
        return {"code": receipt.code, "log": receipt.log, "hash": tx_hash(raw).hex().upper()}

    def _block(self, height: str | None = None) -> dict[str, Any]:
        number = self._number(height)
        txs, _, _ = self.blocks[number - 1]
        header = {
            "height": str(number),
            "time": TIME,
            "app_hash": self.app_hashes[number - 1].hex().upper(),
            "proposer_address": "AB" * 20,
        }
        return {
            "block_id": {"hash": block_hash(number).hex().upper()},
            "block": {"header": header, "data": {"txs": [b64(tx) for tx in txs]}},
        }

    def _block_results(self, height: str) -> dict[str, Any]:
        _, receipts, events = self.blocks[self._number(height) - 1]
        return {
            "txs_results": [result(receipt) for receipt in receipts] or None,
            "finalize_block_events": [event_json(event) for event in events] or None,
        }

    def _tx(self, hash: str) -> dict[str, Any]:
        wanted = base64.b64decode(hash)
        for height, (txs, receipts, _) in enumerate(self.blocks, start=1):
            for index, (tx, receipt) in enumerate(zip(txs, receipts, strict=True)):
                if tx_hash(tx) == wanted and height >= self.first_held:
                    return {"height": str(height), "index": index, "tx_result": result(receipt)}
        raise LookupError(f"tx ({wanted.hex()}) not found")

    def _status(self) -> dict[str, Any]:
        return {
            "node_info": {"version": "0.38.26", "id": "ab" * 20},
            "sync_info": {
                "earliest_block_height": str(self.first_held if self.height >= self.first_held else 0),
                "latest_block_height": str(self.height + self.app_lag),
                "latest_block_time": TIME,
                "catching_up": False,
            },
            "validator_info": {"voting_power": "100"},
        }

    def _num_unconfirmed_txs(self) -> dict[str, Any]:
        return {"total": str(len(self.mempool)), "total_bytes": str(sum(map(len, self.mempool)))}

    def _net_info(self) -> dict[str, Any]:
        peer = {"node_info": {"id": "cd" * 20, "moniker": "other"}, "remote_ip": "10.0.0.2", "is_outbound": True}
        return {"n_peers": "1", "peers": [peer]}

    def _validators(self, page: str, per_page: str, height: str | None = None) -> dict[str, Any]:
        number = self._number(height)
        keys = [bytes([i]) * 32 for i in range(150)]
        start = (int(page) - 1) * int(per_page)
        entries = [{"pub_key": {"value": b64(key)}, "voting_power": "7"} for key in keys[start : start + int(per_page)]]
        return {"block_height": str(number), "validators": entries, "total": str(len(keys))}

    def _number(self, height: str | None) -> int:
        number = self.height if height is None else int(height)
        if not 1 <= number <= self.height:
            raise LookupError(f"height {number} must be less than or equal to the current one, {self.height}")
        if number < self.first_held:
            raise LookupError(f"height {number} is not available, lowest height is {self.first_held}")
        return number


def block_hash(height: int) -> bytes:
    return hashlib.sha256(b"block %d" % height).digest()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def result(receipt: Receipt) -> dict[str, Any]:
    return {
        "code": receipt.code,
        "log": receipt.log,
        "data": b64(receipt.data),
        "gas_used": str(receipt.work_used),
        "events": [event_json(event) for event in receipt.events],
    }


def event_json(event: Event) -> dict[str, Any]:
    return {"type": event.kind, "attributes": [{"key": k, "value": v} for k, v in event.attributes.items()]}
