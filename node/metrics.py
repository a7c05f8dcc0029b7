"""Numbers for Prometheus, under /metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """One registry per process of services."""

    def __init__(self, height: Callable[[], int], usage: Callable[[], dict[str, int]]) -> None:
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

    def count_call(self, method: str, code: int) -> None:
        self._calls.labels(method=method, code=str(code)).inc()

    def render(self) -> bytes:
        """The text format of Prometheus."""
        for what, value in self._usage().items():
            self._disk.labels(what=what).set(value)
        return generate_latest(self._registry)
