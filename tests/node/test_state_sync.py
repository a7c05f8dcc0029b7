"""Setting a node up for state sync: what is trusted, who is asked, and homes that are refused."""

import json
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from node.checks import single_instance
from node.config import ConfigError, StateSyncConfig, load_config
from node.engine_files import engine_config
from node.errors import SetupError
from node.reset import CHAIN_DATA, reset_chain
from node.state_sync import RECENT_BLOCKS, arm
from outerstep.cli import app as command_line
from tests.node.conftest import CHAIN_ID, Made

HASH = "ab" * 32


class Source:
    """What one node's `/engine` says."""

    def __init__(self, *, first: int = 1, last: int = 5000, chain_id: str = CHAIN_ID, salt: str = "a") -> None:
        self.first, self.last, self.chain_id, self.salt = first, last, chain_id, salt
        self.asked: list[int] = []
        self.odd: dict[str, Any] = {}
        """Method to what it answers instead."""

    def hash(self, height: int) -> str:
        return f"{self.salt}{height:063x}".upper()

    async def post(self, request: web.Request) -> web.Response:
        call = await request.json()
        result = self.odd.get(call["method"]) or getattr(self, call["method"])(**call["params"])
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], **result})

    def status(self) -> dict[str, Any]:
        sync = {"earliest_block_height": str(self.first), "latest_block_height": str(self.last)}
        return {"result": {"node_info": {"network": self.chain_id}, "sync_info": sync}}

    def commit(self, height: str) -> dict[str, Any]:
        self.asked.append(int(height))
        signed = {"header": {"height": height}, "commit": {"block_id": {"hash": self.hash(int(height))}}}
        return {"result": {"signed_header": signed}}


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts sources; returns their addresses."""
    async with AsyncExitStack() as stack:

        async def start(*sources: Source) -> list[str]:
            urls = []
            for source in sources:
                application = web.Application()
                application.add_routes([web.post("/engine", source.post)])
                server = await stack.enter_async_context(TestServer(application))
                urls.append(str(server.make_url("")).rstrip("/"))
            return urls

        yield start


# --- what is trusted ------------------------------------------------------------------------------------------------
async def test_a_recent_block_that_all_sources_have_is_trusted(made: Made, serve: Serve) -> None:
    sources = [Source(last=5000), Source(last=4990), Source(first=100, last=5005)]
    trust = await arm(made.home, await serve(*sources))
    assert trust.agreed
    assert (trust.height, trust.hash.hex()) == (4990 - RECENT_BLOCKS, sources[0].hash(trust.height).lower())
    assert [source.asked for source in sources] == [[trust.height]] * 3
    chosen = load_config(made.home).state_sync
    assert (chosen.sources, chosen.trust_height, chosen.trust_hash) == (trust.sources, trust.height, trust.hash.hex())


@pytest.mark.parametrize(("first", "last", "wanted"), [(1, 7, 1), (1, 1, 1), (4500, 5000, 4500)])
async def test_young_chains_and_nodes_without_old_blocks_have_their_first_one_trusted(
    made: Made, serve: Serve, first: int, last: int, wanted: int
) -> None:
    assert (await arm(made.home, await serve(Source(first=first, last=last)))).height == wanted


async def test_a_given_block_is_taken_without_asking_anybody(made: Made) -> None:
    trust = await arm(made.home, ["127.0.0.1:1/", "http://127.0.0.1:1"], trust_height=7, trust_hash=HASH.upper())
    assert not trust.agreed
    assert trust.sources == ("http://127.0.0.1:1",)
    assert load_config(made.home).state_sync.trust_hash == HASH


async def test_the_engine_is_told_two_servers_in_any_case(made: Made) -> None:
    def section() -> dict[str, Any]:
        return dict(tomllib.loads(engine_config(made.home, load_config(made.home)))["statesync"])

    assert section()["enable"] is False
    await arm(made.home, ["http://a:1"], trust_height=7, trust_hash=HASH)
    assert section() | {"enable": True, "trust_height": 7, "trust_hash": HASH} == section()
    assert section()["rpc_servers"] == "http://a:1/engine,http://a:1/engine"
    await arm(made.home, ["http://a:1", "http://b:1", "http://c:1"], trust_height=7, trust_hash=HASH)
    assert section()["rpc_servers"] == "http://a:1/engine,http://b:1/engine,http://c:1/engine"


# --- sources that will not do ---------------------------------------------------------------------------------------
def answers(result: Any) -> dict[str, Any]:
    return {"result": result}


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (Source(salt="b"), "disagree about block 4000, so at least one lies"),
        (Source(chain_id="other-1"), "is of chain 'other-1'; this node's genesis is of"),
        (Source(first=0, last=0), "has no blocks yet"),
        (Source(first=9, last=8), "has no blocks yet"),
    ],
)
async def test_a_source_that_says_something_else_is_named(
    made: Made, serve: Serve, source: Source, complaint: str
) -> None:
    with pytest.raises(SetupError, match=complaint):
        await arm(made.home, await serve(Source(), source))
    assert load_config(made.home).state_sync == StateSyncConfig()


@pytest.mark.parametrize(
    "odd",
    [
        {"status": answers([])},
        {"status": answers({"node_info": {"network": CHAIN_ID}, "sync_info": {"earliest_block_height": "x"}})},
        {"commit": answers({"signed_header": None})},
        {"commit": answers({"signed_header": {"header": {"height": "4001"}, "commit": {"block_id": {"hash": HASH}}}})},
        {"commit": answers({"signed_header": {"header": {"height": "4000"}, "commit": {"block_id": {"hash": "zz"}}}})},
        {"commit": answers({"signed_header": {"header": {"height": "4000"}, "commit": {"block_id": {"hash": 5}}}})},
        {"status": {"error": {"code": -32603, "message": "Internal error"}}},
    ],
)
async def test_a_source_that_answers_nonsense_is_a_clear_error(made: Made, serve: Serve, odd: dict[str, Any]) -> None:
    source = Source()
    source.odd = odd
    with pytest.raises(SetupError, match=r"http://127\.0\.0\.1:\d+/engine"):
        await arm(made.home, await serve(source))


async def test_a_source_that_does_not_answer_is_named(made: Made, serve: Serve) -> None:
    with pytest.raises(SetupError, match=r"no answer from http://127\.0\.0\.1:1/engine"):
        await arm(made.home, [*await serve(Source()), "http://127.0.0.1:1"])


@pytest.mark.parametrize(
    ("sources", "trust", "complaint"),
    [
        ([], {}, "0 nodes are named"),
        ([f"http://a:{port}" for port in range(1, 12)], {}, "11 nodes are named"),
        (["http://a:1"], {"trust_height": 5}, "give both, or neither"),
        (["http://a:1"], {"trust_hash": HASH}, "give both, or neither"),
        (["http://a:1"], {"trust_height": 0, "trust_hash": HASH}, "trust_height is 0"),
        (["http://a:1"], {"trust_height": 5, "trust_hash": "abc"}, "should be 64 hex digits"),
        (["ftp://a:1"], {"trust_height": 5, "trust_hash": HASH}, "should be like http://host:port"),
        (['http://a:1"\nx'], {"trust_height": 5, "trust_hash": HASH}, "should be like http://host:port"),
        (["http://a:1,http://b:1"], {"trust_height": 5, "trust_hash": HASH}, "should be like http://host:port"),
    ],
)
async def test_a_wrong_choice_says_what_it_should_be(
    made: Made, sources: list[str], trust: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SetupError, match=complaint):
        await arm(made.home, sources, **trust)


@pytest.mark.parametrize(
    "text",
    [
        "[snapshots]\nkeep = 0",
        "[snapshots]\ninterval_blocks = -1",
        '[state_sync]\nsources = ["http://a:1"]',
        "[state_sync]\ntrust_period_h = 0",
        '[state_sync]\ntrust_hash = "x"',
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"(snapshots|state_sync)\.[a-z_]+ is "):
        load_config(tmp_path)


# --- homes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [*CHAIN_DATA, "cometbft/data/blockstore.db"])
async def test_a_home_with_a_copy_of_the_chain_is_refused_until_it_is_reset(made: Made, name: str) -> None:
    (made.home / name).mkdir()
    with pytest.raises(SetupError, match=rf"holds a copy of the chain already \({name}\).*outerstep node reset"):
        await arm(made.home, ["http://a:1"], trust_height=5, trust_hash=HASH)
    reset_chain(made.home)
    assert not (made.home / name).exists()
    await arm(made.home, ["http://a:1"], trust_height=5, trust_hash=HASH)


async def test_a_home_whose_node_runs_or_that_has_no_genesis_is_refused(made: Made, tmp_path: Path) -> None:
    with single_instance(made.home), pytest.raises(SetupError, match="a node runs in"):
        await arm(made.home, ["http://a:1"], trust_height=5, trust_hash=HASH)
    (made.home / "cometbft/config/genesis.json").unlink()
    with pytest.raises(SetupError, match=r"there is no .*genesis\.json"):
        await arm(made.home, ["http://a:1"], trust_height=5, trust_hash=HASH)
    with pytest.raises(SetupError, match="outerstep node init"):
        await arm(tmp_path / "nowhere", ["http://a:1"], trust_height=5, trust_hash=HASH)


def test_the_command_says_plainly_what_is_trusted(made: Made) -> None:
    command = ["node", "state-sync", "--home", str(made.home), "--from", "http://a:1, http://b:1", "--from", "c:1"]
    trust = ["--trust-height", "7", "--trust-hash", HASH]
    said = CliRunner().invoke(command_line, [*command, *trust])
    assert said.exit_code == 0, said.output
    assert f"Trusted block: height 7, hash {HASH}: you gave it" in said.stdout
    assert len(load_config(made.home).state_sync.sources) == 3
    document = json.loads(CliRunner().invoke(command_line, [*command, *trust, "--json"]).stdout)
    assert (document["height"], document["hash"], document["agreed"]) == (7, HASH, False)
