"""A client of several nodes: the next one is asked when one does not answer."""

from collections.abc import Sequence
from typing import Any

import aiohttp

from node.client import Client
from node.errors import NOT_READY, NodeUnreachable, RpcError
from node.light.client import LightClient
from node.rpc_client import RpcConnection
from primitives.keys import PrivateKey


class FallbackConnection(RpcConnection):
    """Calls to the first endpoint that answers; the one that answered last is asked first the next time."""

    def __init__(
        self, endpoints: Sequence[str], *, timeout_s: float = 10.0, session: aiohttp.ClientSession | None = None
    ) -> None:
        super().__init__(endpoints[0], timeout_s=timeout_s, session=session)
        self._endpoints = list(endpoints)

    async def call(self, method: str, params: dict[str, Any], *, extra_s: float = 0.0) -> Any:
        """Raises: as RpcConnection.call, with the last endpoint's trouble, once none of them answers."""
        problem: NodeUnreachable | RpcError | None = None
        for _ in self._endpoints:
            try:
                return await super().call(method, params, extra_s=extra_s)
            except NodeUnreachable as error:
                problem = error
            except RpcError as error:
                if error.code != NOT_READY:
                    raise
                problem = error
            self._use_next()
        assert problem is not None
        raise problem

    def _use_next(self) -> None:
        position = self._endpoints.index(self.endpoint)
        self.endpoint = self._endpoints[(position + 1) % len(self._endpoints)]


class FallbackClient(Client):
    """A `Client` over several addresses of the same network. `urls` holds at least one."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: PrivateKey | None = None,
        timeout_s: float = 10.0,
        light: LightClient | None = None,
    ) -> None:
        super().__init__(urls[0], key=key, timeout_s=timeout_s, light=light)
        addresses = [(url if "://" in url else f"http://{url}").rstrip("/") for url in urls]
        self._rpc = FallbackConnection([f"{address}/rpc" for address in addresses], timeout_s=timeout_s)
