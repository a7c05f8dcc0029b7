"""CometBFT's own abci-cli runs scripts against the application's socket; its answers are compared with text files.

A script and what it prints lie in abci_cli/ as NAME.abci and NAME.out. In both, `$name` stands for bytes that the test
makes (a signed transaction, an app hash computed in this process), so the files stay readable and a change of
encodings leaves them as they are. OUTERSTEP_WRITE_GOLDEN=1 writes the .out files anew; read the difference then.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from abci_app.application import Application
from abci_app.records import Account
from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import FrameParser, frame
from abci_app.store import Store
from abci_app.tables import ACCOUNTS
from node.engine import find_abci_cli
from primitives.encoding import encode
from tests.abci_app.engines import needed
from tests.abci_app.kit import BOB, RICH, AppProcess, block, init_chain, run_block, transfer
from tests.abci_app.server.client import AbciClient

pytestmark = pytest.mark.network

FOLDER: Final = Path(__file__).parent / "abci_cli"
WRITE_VARIABLE: Final = "OUTERSTEP_WRITE_GOLDEN"
TRANSFERS: Final = [transfer(nonce) for nonce in range(4)]
DAMAGED: Final = TRANSFERS[3][:-1] + bytes([TRANSFERS[3][-1] ^ 1])
FIRST_BLOCK: Final = TRANSFERS[:1]
BLOCKS: Final = [TRANSFERS[1:3], [b"abc", TRANSFERS[3], TRANSFERS[3], DAMAGED]]
"""What blocks.abci finalizes after the first block."""
NAMES: Final = {**{f"$transfer_{i}": tx for i, tx in enumerate(TRANSFERS)}, "$damaged": DAMAGED}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppProcess]:
    """After InitChain, which abci-cli does not have, and a first block."""
    app = await AppProcess(tmp_path).start()
    async with await AbciClient.connect(app.socket) as client:
        await client.call(init_chain=init_chain())
        await client.call(finalize_block=block(1, FIRST_BLOCK))
        await client.call(commit=pb.RequestCommit())
    yield app
    await app.kill()


async def abci_cli(socket: Path, *command: str, script: str = "") -> tuple[bytes, int]:
    """What abci-cli prints, errors too, and its exit status."""
    process = await asyncio.create_subprocess_exec(
        needed(find_abci_cli),
        *(f"--address=unix://{socket}", "--verbose=true", "--log_level=error", *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate(script.encode())
    assert process.returncode is not None
    return output, process.returncode


async def batch(socket: Path, name: str) -> tuple[bytes, int]:
    script = (FOLDER / f"{name}.abci").read_text()
    for word, value in NAMES.items():
        script = script.replace(word, f"0x{value.hex()}")
    return await abci_cli(socket, "batch", script=script)


def assert_golden(name: str, output: bytes, names: Mapping[str, bytes]) -> None:
    """`output` with names put back for their bytes, raw or in hex, is NAME.out."""
    for word, value in names.items():
        for form in (value, f"0x{value.hex()}".encode(), b"0x" + value.hex().upper().encode()):
            output = output.replace(form, word.encode())
    path = FOLDER / f"{name}.out"
    if os.environ.get(WRITE_VARIABLE):
        path.write_bytes(output)
    assert output.decode() == path.read_text()


def app_hashes(folder: Path) -> dict[str, bytes]:
    """The app hashes after each block of blocks.abci, computed in this process."""
    with Store(folder) as store:
        application = Application(store)
        application.init_chain(init_chain())
        run_block(application, 1, FIRST_BLOCK)
        return {f"$app_hash_{i}": run_block(application, i, txs).app_hash for i, txs in enumerate(BLOCKS, start=2)}


@contextlib.asynccontextmanager
async def heights_filled_in(socket: Path, first_height: int) -> AsyncIterator[Path]:
    """A socket in front of `socket` that gives each block a height, a time and a hash: abci-cli sends none."""
    path = socket.with_name("relay.sock")
    height = first_height

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal height
        parser = FrameParser()
        upstream_reader, upstream = await asyncio.open_unix_connection(str(socket))
        back = asyncio.create_task(pump(upstream_reader, writer))
        while data := await reader.read(1 << 16):
            for request in map(pb.Request.FromString, parser.feed(data)):
                kind = request.WhichOneof("value")
                if kind == "finalize_block":
                    request.finalize_block.MergeFrom(block(height))
                elif kind in ("prepare_proposal", "process_proposal"):
                    getattr(request, kind).height = height
                height += kind == "commit"
                upstream.write(frame(request.SerializeToString()))
        upstream.close()
        await back

    async with await asyncio.start_unix_server(serve, str(path)):
        yield path


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


async def test_queries_checks_and_proposals_are_answered_as_written(app: AppProcess) -> None:
    output, status = await batch(app.socket, "queries")
    assert_golden("queries", output, NAMES)
    assert status == 0


async def test_blocks_with_good_and_bad_transactions_are_executed_as_written(app: AppProcess, tmp_path: Path) -> None:
    async with heights_filled_in(app.socket, 2) as relay:
        output, status = await batch(relay, "blocks")
    assert_golden("blocks", output, {**NAMES, **app_hashes(tmp_path / "reference")})
    assert status == 0
    output, _ = await abci_cli(app.socket, "query", f"0x{ACCOUNTS.key(BOB.address).hex()}", "--path=key")
    assert f"-> value.hex: {encode(Account(balance=RICH + 4 * 5)).hex().upper()}\n" in output.decode(errors="replace")
    assert b"-> height: 3\n" in output


async def test_a_block_at_the_wrong_height_is_never_executed(app: AppProcess) -> None:
    """abci-cli names height 0: the application stops rather than guess, and stands where it stood when it is back."""
    output, status = await batch(app.socket, "wrong_height")
    assert status != 0
    assert b"> info" in output
    assert b"> finalize_block" not in output  # printed with an answer only
    code, errors = await app.ended()
    assert code == 1
    assert "block 0 was decided; the application needs 2" in errors
    await app.start()
    assert app.ready_line.split()[3] == "height=1"
