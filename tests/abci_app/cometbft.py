"""A real CometBFT with one validator, for tests marked `network`."""

import asyncio
import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from node.engine import find_engine
from tests.abci_app.kit import MAX_BLOCK_BYTES, POWER, genesis
from tests.ports import free_ports


class Engine:
    """One CometBFT process and its home."""

    def __init__(self, home: Path, application_socket: Path) -> None:
        self.home = home
        self._binary = str(find_engine())
        self._proxy_app = f"unix://{application_socket}"
        port = free_ports(2)
        self.p2p = f"127.0.0.1:{port}"
        self.rpc = f"http://127.0.0.1:{port + 1}"
        self.process: asyncio.subprocess.Process

    async def init(self, chain_id: str, **settings: str) -> None:
        """Make the home, with the validator's bond in the genesis of both CometBFT and application.

        `settings` are lines of config.toml that should have other values than CometBFT's defaults.
        """
        await self._run("init", wait=True)
        path = self.home / "config" / "genesis.json"
        document = json.loads(path.read_text())
        key = base64.b64decode(document["validators"][0]["pub_key"]["value"])
        document["validators"][0]["power"] = str(POWER)
        document["chain_id"] = chain_id
        document["consensus_params"]["block"]["max_bytes"] = str(MAX_BLOCK_BYTES)
        document["app_state"] = json.loads(genesis(key))
        path.write_text(json.dumps(document))
        self.set_config(**{"timeout_commit": '"50ms"', **settings})

    def set_config(self, **settings: str) -> None:
        """Replace lines of config.toml."""
        config = self.home / "config" / "config.toml"
        text = config.read_text()
        for name, value in settings.items():
            text, found = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", text)
            assert found == 1, name
        config.write_text(text)

    async def node_id(self) -> str:
        """CometBFT's p2p id of this home."""
        command = (self._binary, "--home", str(self.home), "show-node-id")
        shown = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        return (await shown.communicate())[0].decode().strip()

    async def start(self, **environment: str) -> None:
        """`environment`: variables to set besides those of the tests."""
        await self._run(
            *("start", "--proxy_app", self._proxy_app, "--rpc.laddr", self.rpc.replace("http", "tcp")),
            *("--p2p.laddr", f"tcp://{self.p2p}"),
            environment=environment,
        )

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def call(self, method: str, **params: Any) -> Any:
        """One RPC; retried while the node is still starting."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):
            while True:
                try:
                    async with session.post(self.rpc, json=request) as response:
                        answer = await response.json(content_type=None)
                except aiohttp.ClientConnectionError:
                    assert self.process.returncode is None, f"CometBFT ended: {self.log()[-2000:]}"
                    await asyncio.sleep(0.05)
                    continue
                if "catching up" in str(answer.get("error", {}).get("data")):  # 0.40 takes no transactions then
                    await asyncio.sleep(0.05)
                    continue
                assert "error" not in answer, answer["error"]
                return answer["result"]

    async def height_above(self, height: int) -> int:
        """Wait until a block above `height` is committed; returns the newest height."""
        async with asyncio.timeout(30):
            while True:
                status = await self.call("status")
                newest = int(status["sync_info"]["latest_block_height"])
                if newest > height:
                    return newest
                await asyncio.sleep(0.05)

    def log(self) -> str:
        return (self.home / "log").read_text()

    async def _run(self, *arguments: str, wait: bool = False, environment: Mapping[str, str] | None = None) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(self._binary, "--home", str(self.home), *arguments),
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        if wait:
            assert await self.process.wait() == 0, self.log()
