"""Commands that fail although the node answers: one clear line, exit code 1, nothing half-written."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace
from typer.testing import Result

from abci_app import tables
from abci_app.records import Deal
from abci_app.state import Branch
from node.config import ports_from
from node.init import init_node
from node.keys import write_key
from primitives.keys import format_address
from storage.tree import FileTree
from tests.node.cli.test_command_line import one_line, outerstep
from tests.node.conftest import ALICE, BOB, Made, Served
from tests.node.test_sending import blocks_as_needed

DATA = bytes(range(256)) * 2000
HUGE = str(10**30)


async def command(served: Served, *arguments: str | Path, **environment: str) -> Result:
    """A command against the node, in a thread since the node answers from this one."""
    return await asyncio.to_thread(outerstep, *arguments, OUTERSTEP_NODE=served.url, **environment)


def put_deal(served: Served, url: str) -> None:
    """Deal 1 is of DATA, and its one provider serves at `url`."""
    operator = served.node.identity.operator
    tree = FileTree.build(DATA)
    deal = Deal(
        id=1,
        owner=ALICE.address,
        key=bytes(32),
        root=tree.root,
        size=tree.size,
        tier="hot",
        series="models",
        replicas=1,
        duration=1000,
        providers=(operator,),
        status="active",
        escrow=0,
        price_per_block=0,
        created_height=1,
        end_height=1000,
    )

    def change(branch: Branch) -> None:
        validator = tables.VALIDATORS.get(branch, operator)
        assert validator is not None
        tables.VALIDATORS.put(branch, replace(validator, url=url), operator)
        tables.DEALS.put(branch, deal, 1)

    served.engine.deliver([], change)


@pytest.fixture
async def cut_short() -> AsyncIterator[str]:
    """A provider that promises a whole answer and hangs up after a few bytes of it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(DATA))})
        await response.prepare(request)
        await response.write(DATA[:100])
        assert request.transport is not None
        request.transport.close()
        return response

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_download_that_is_cut_short_fails_and_leaves_no_file(
    served: Served, cut_short: str, tmp_path: Path
) -> None:
    """FAULTS S23: a short download is never reported as success."""
    put_deal(served, cut_short)
    out = tmp_path / "model"
    result = await command(served, "storage", "download", "1", "--out", out)
    assert result.exit_code == 1
    assert cut_short in one_line(result)
    assert "Traceback" not in result.stderr
    assert not out.exists()


async def test_a_failed_download_keeps_the_file_that_was_there(served: Served, cut_short: str, tmp_path: Path) -> None:
    put_deal(served, cut_short)
    out = tmp_path / "model"
    out.write_bytes(b"of yesterday")
    assert (await command(served, "storage", "download", "1", "--out", out)).exit_code == 1
    assert out.read_bytes() == b"of yesterday"


async def test_a_blob_that_nobody_published_is_named(served: Served, tmp_path: Path) -> None:
    result = await command(served, "da", "get", "ab" * 32, "--out", tmp_path / "blob")
    assert result.exit_code == 1
    assert one_line(result) == f"error: blob {'ab' * 32} is not certified on this chain"
    assert not (tmp_path / "blob").exists()


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["storage", "info", "7"], "no deal for 7"),
        (["storage", "download", "ab" * 32, "--out", "x"], "no deal for abab"),
        (["query", "job", "7"], "no job 7"),
        (["query", "settlements", "7"], "no job 7"),
        (["query", "block", "7000"], "no block 7000"),
        (["query", "block", HUGE], "height"),
        (["query", "deal", HUGE], "deal_id"),
        (["job", "show", HUGE], "job_id"),
        (["job", "cancel", "7"], "no job 7"),
        (["tx", "extend-deal", "1", HUGE], "blocks"),
        (["tx", "delete-deal", HUGE], "deal_id"),
        (["tx", "transfer", format_address(BOB.address), "9000000000000"], "InsufficientFunds"),
        (["da", "put", "empty"], "0 bytes"),
        (["da", "put", "."], "directory"),
        (["storage", "upload", "text", "--series", "No Such"], "series"),
        (["storage", "upload", "text", "--replicas", HUGE], "replicas"),
        (["storage", "upload", "text", "--replicas", "9"], "providers"),
        (["job", "create", "--text", "text", "--rounds", HUGE], "rounds"),
        (["job", "create", "--text", "text", "--reward", "-1"], "reward"),
        (["job", "create", "--text", "text", "--scorer", "me"], "scorers"),
        (["job", "create", "--text", "text", "--train-blocks", "5000"], "unbonding_blocks"),
        (["job", "create", "--text", "text", "--set", "width=--5"], "width is '--5'"),
        (["job", "create", "--text", "text", "--set", "widht=5"], "training.widht is not a setting"),
        (["job", "create", "--text", "text", "--set", f"width={'9' * 5000}"], "width is"),
    ],
)
async def test_what_cannot_be_done_is_one_line_that_names_it(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], about: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_bytes(DATA)
    (tmp_path / "empty").write_bytes(b"")
    write_key(tmp_path / "alice.json", ALICE)
    environment = {"OUTERSTEP_KEY": "alice.json", "OUTERSTEP_JOURNAL": "journal"}
    async with blocks_as_needed(served):
        result = await command(served, *arguments, **environment)
    assert result.exit_code == 1, (result.output, result.exception)
    assert about in one_line(result)
    assert not (tmp_path / "x").exists()


async def test_a_node_registers_its_service_with_the_keys_in_its_home(served: Served, made: Made) -> None:
    async with blocks_as_needed(served):
        result = await command(served, "tx", "register-service", "--home", made.home, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    owner = tables.SERVICE_KEYS.get(served.engine.store.committed, made.identity.service_key)
    assert owner is not None
    assert owner.operator == made.identity.operator


async def test_a_new_node_becomes_a_validator_with_its_service(served: Served, tmp_path: Path) -> None:
    home = tmp_path / "second"
    identity = init_node(home, moniker="second", network=ports_from(41000), operator=ALICE)
    async with blocks_as_needed(served):
        result = await command(served, "tx", "register-validator", "50", "--home", home, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    validator = tables.VALIDATORS.get(served.engine.store.committed, ALICE.address)
    assert validator is not None
    assert (validator.service_key, validator.url) == (identity.service_key, identity.url)
