"""Light blocks from a node, by the calls that it passes on at /engine (node.engine_proxy). Nothing is verified here."""

from typing import Any, Final, Protocol

import aiohttp

from node.errors import RpcError
from node.light.blocks import MAX_VALIDATORS, LightBlock, Validator
from node.light.decoding import DecodingError, light_block, read_signed_header, read_validators
from node.light.errors import BlockMissing, InvalidBlock
from node.rpc_client import RpcConnection

PER_PAGE: Final = 100
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""More than a commit of 10,000 validators in JSON."""


class Source(Protocol):
    """Where light blocks come from."""

    url: str

    async def light_block(self, height: int) -> LightBlock:
        """Raises: NodeUnreachable, BlockMissing, InvalidBlock (of another form than it should be)."""

    async def close(self) -> None: ...


class NodeSource:
    """One node's services. `url` is their address."""

    def __init__(self, url: str, *, timeout_s: float = 10.0, session: aiohttp.ClientSession | None = None) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        endpoint = f"{self.url}/engine"
        self._rpc = RpcConnection(endpoint, timeout_s=timeout_s, session=session, max_answer_bytes=MAX_ANSWER_BYTES)

    async def close(self) -> None:
        await self._rpc.close()

    async def light_block(self, height: int) -> LightBlock:
        """As the protocol says."""
        try:
            header, commit = read_signed_header(await self._call("commit", height))
            if header.height != height:
                raise InvalidBlock(height, f"{self.url} sent block {header.height} instead")
            return light_block(header, commit, await self._validators(height))
        except DecodingError as error:
            raise InvalidBlock(height, f"{self.url} sent something else: {error}") from error

    async def _validators(self, height: int) -> tuple[Validator, ...]:
        found: tuple[Validator, ...] = ()
        for page in range(1, MAX_VALIDATORS // PER_PAGE + 1):
            answer = await self._call("validators", height, page=str(page), per_page=str(PER_PAGE))
            more, total = read_validators(answer, height)
            found += more
            if len(found) >= min(total, MAX_VALIDATORS + 1) or not more:
                break
        return found

    async def _call(self, method: str, height: int, **params: str) -> Any:
        try:
            return await self._rpc.call(method, {"height": str(height), **params})
        except RpcError as error:
            raise BlockMissing(self.url, height, error.message) from error
