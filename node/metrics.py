"""Numbers for Prometheus, under /metrics. Names of what other parts count are in node.metric_names."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node.chain import Engine
from node.errors import NodeError
from node.metric_names import DA, ENGINE, STORAGE, Name

logger = logging.getLogger("outerstep.metrics")

Readings = Mapping[str, int]
ENGINE_TIMEOUT_S: Final = 2.0
ENGINE_KEPT_S: Final = 1.0
"""How long numbers of the engine are given out again, so that many scrapes ask it once."""


class Metrics:
    """One registry per process of services."""

    def __init__(
        self,
        height: Callable[[], int],
        usage: Callable[[], dict[str, int]],
        *,
        engine: Engine,
        da: Callable[[], Readings],
        storage: Callable[[], Readings],
    ) -> None:
        """`height` is the last one that the services have seen; `da` and `storage` give what those parts count."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second sample per counter that says when it began
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "outerstep_rpc_calls",
            "JSON-RPC calls by method and error code (0: none).",
            ["method", "code"],
            registry=self._registry,
        )
        self.sockets = Gauge("outerstep_websockets", "Open WebSocket connections.", registry=self._registry)
        self.slow_sockets = Counter(
            "outerstep_websockets_dropped",
            "Connections closed because they did not keep up.",
            registry=self._registry,
        )
        Gauge("outerstep_height", "Last committed height.", registry=self._registry).set_function(height)
        self._disk = Gauge(
            "outerstep_disk_bytes", "Bytes on disk by use, and budgets.", ["what"], registry=self._registry
        )
        self._usage = usage
        self._engine = EngineNumbers(engine, height)
        self._registry.register(_Source(DA, da))
        self._registry.register(_Source(STORAGE, storage))
        self._registry.register(_Source(ENGINE, lambda: self._engine.readings))

    def count_call(self, method: str, code: int) -> None:
        self._calls.labels(method=method, code=str(code)).inc()

    async def render(self) -> bytes:
        """The text format of Prometheus."""
        await self._engine.refresh()
        for what, value in self._usage().items():
            self._disk.labels(what=what).set(value)
        return generate_latest(self._registry)


class EngineNumbers:
    """What CometBFT says of itself and of the application, asked for when it is wanted."""

    def __init__(self, engine: Engine, height: Callable[[], int]) -> None:
        self._engine = engine
        self._height = height
        self._asked_at = -ENGINE_KEPT_S
        self._asking = asyncio.Lock()
        self.readings: Readings = {}

    async def refresh(self) -> None:
        """Ask again unless the last answers are younger than ENGINE_KEPT_S. Says `up` 0 when it gets none."""
        async with self._asking:
            if time.monotonic() - self._asked_at < ENGINE_KEPT_S:
                return
            try:
                async with asyncio.timeout(ENGINE_TIMEOUT_S):
                    self.readings = await self._ask()
            except (NodeError, TimeoutError) as error:
                logger.info("no numbers from the engine: %s", error)
                self.readings = {"up": 0}
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                logger.warning("the engine answered in another form: %r", error)
                self.readings = {"up": 0}
            self._asked_at = time.monotonic()

    async def _ask(self) -> Readings:
        methods = ("status", "num_unconfirmed_txs", "net_info")
        status, mempool, net = await asyncio.gather(*(self._engine.call(method) for method in methods))
        app_height = await self._engine.committed_height()
        height = int(status["sync_info"]["latest_block_height"])
        return {
            "up": 1,
            "height": height,
            "catching_up": int(bool(status["sync_info"]["catching_up"])),
            "app_height": app_height,
            "app_lag": max(0, height - app_height),
            "services_lag": max(0, app_height - self._height()),
            "mempool_transactions": int(mempool["total"]),
            "mempool_bytes": int(mempool["total_bytes"]),
            "peers": int(net["n_peers"]),
        }


class _Source(Collector):
    """Turns the numbers of one part into metrics."""

    def __init__(self, names: Mapping[str, Name], read: Callable[[], Readings]) -> None:
        self._names = names
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for key, value in self._read().items():
            name = self._names[key]
            family = CounterMetricFamily if name.kind == "counter" else GaugeMetricFamily
            yield family(name.name, name.meaning, value=value)
