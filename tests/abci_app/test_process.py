"""``python -m abci_app`` as a real process: crashes at bad moments, replay, and every reason not to start."""

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from abci_app.application import Application
from abci_app.server import abci_pb2 as pb
from abci_app.store import Store
from tests.abci_app.kit import AppProcess, block, init_chain, run_block, transfer
from tests.abci_app.server.client import AbciClient, check_tx, flush

BLOCKS: list[list[bytes]] = [[transfer(0), b"garbage"], [], [transfer(1), transfer(2)], [transfer(3)], [transfer(4)]]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppProcess]:
    app = AppProcess(tmp_path)
    await app.start()
    yield app
    await app.kill()


def expected_hashes(folder: Path, blocks: Sequence[list[bytes]]) -> list[bytes]:
    """App hash after each block, computed in this process."""
    with Store(folder) as store:
        application = Application(store)
        application.init_chain(init_chain())
        return [run_block(application, i + 1, txs).app_hash for i, txs in enumerate(blocks)]


async def replay(app: AppProcess, blocks: Sequence[list[bytes]]) -> list[bytes]:
    """What CometBFT does after a start: ask Info, then run the blocks that the application lacks."""
    async with await AbciClient.connect(app.socket) as client:
        height = (await client.call(info=pb.RequestInfo())).last_block_height
        if height == 0:
            await client.call(init_chain=init_chain())
        hashes = []
        for index in range(height, len(blocks)):
            hashes.append((await client.call(finalize_block=block(index + 1, blocks[index]))).app_hash)
            await client.call(commit=pb.RequestCommit())
        return hashes


async def test_it_says_when_it_is_ready_and_stops_on_sigterm(app: AppProcess) -> None:
    assert app.ready_line == f"abci_app ready socket={app.socket} height=0 app_hash=\n"
    assert await app.terminate() == (0, "")
    assert not app.socket.exists()


async def test_it_stops_on_sigint_with_connections_open(app: AppProcess) -> None:
    async with await AbciClient.connect(app.socket) as client:
        await client.call(init_chain=init_chain())
        app.process.send_signal(signal.SIGINT)
        assert await app.ended() == (0, "")


async def test_a_kill_between_finalize_and_commit_loses_nothing(app: AppProcess, tmp_path: Path) -> None:
    want = expected_hashes(tmp_path / "reference", BLOCKS)
    assert await replay(app, BLOCKS[:2]) == want[:2]
    async with await AbciClient.connect(app.socket) as client:
        await client.call(info=pb.RequestInfo())
        assert (await client.call(finalize_block=block(3, BLOCKS[2]))).app_hash == want[2]
        await app.kill()
    await app.start()
    assert app.ready_line.split()[3] == "height=2"
    assert await replay(app, BLOCKS) == want[2:]


async def test_kills_at_random_moments_of_commit_leave_one_block_or_the_other(app: AppProcess, tmp_path: Path) -> None:
    want = [b"", *expected_hashes(tmp_path / "reference", BLOCKS)]
    moments = random.Random(1)
    height = 0
    for index, txs in enumerate(BLOCKS[:3]):
        async with await AbciClient.connect(app.socket) as client:
            if height == 0:
                await client.call(init_chain=init_chain())
            await client.call(finalize_block=block(index + 1, txs))
            await client.send(pb.Request(commit=pb.RequestCommit()), flush())
            await asyncio.sleep(moments.uniform(0, 0.003))
            await app.kill()
        app.arguments = ("--check",)
        await app.start()
        async with await AbciClient.connect(app.socket) as client:
            info = await client.call(info=pb.RequestInfo())
            height = info.last_block_height
            assert height in (index, index + 1)
            assert info.last_block_app_hash == want[height]
        await replay(app, BLOCKS[: index + 1])
        height = index + 1


async def test_replay_into_an_empty_folder_gives_the_same_app_hashes(app: AppProcess, tmp_path: Path) -> None:
    hashes = await replay(app, BLOCKS)
    await app.kill()
    for path in app.data.iterdir():
        path.unlink()
    await app.start()
    assert await replay(app, BLOCKS) == hashes == expected_hashes(tmp_path / "reference", BLOCKS)


async def test_a_genesis_that_does_not_fit_stops_the_process_with_the_reason(app: AppProcess) -> None:
    async with await AbciClient.connect(app.socket) as client:
        await client.send(pb.Request(init_chain=init_chain(power=99)), flush())
        status, errors = await app.ended()
    assert status == 1
    assert "with power = bond // 1000000" in errors
    assert "Traceback" not in errors


async def test_garbage_transactions_and_frames_do_not_stop_it(app: AppProcess) -> None:
    await replay(app, BLOCKS[:1])
    noise = random.Random(2)
    txs = [noise.randbytes(noise.randrange(300)) for _ in range(500)]
    async with await AbciClient.connect(app.socket) as client:
        await client.send(*(check_tx(tx) for tx in txs), *(check_tx(tx, recheck=True) for tx in txs), flush())
        assert all([(await client.receive()).check_tx.code for _ in range(1000)])
    async with await AbciClient.connect(app.socket) as client:
        await client.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        assert (await client.receive()).exception.error
    assert len(await replay(app, [*BLOCKS[:1], txs])) == 1
    status, log = await app.terminate()
    assert (status, "not an ABCI request" in log) == (0, True)


async def test_a_second_process_on_the_same_data_or_socket_is_refused(app: AppProcess, tmp_path: Path) -> None:
    other = await AppProcess(tmp_path, ()).start()
    assert other.ready_line == ""
    status, errors = await other.ended()
    assert (status, "in use by another process" in errors) == (2, True)
    elsewhere = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "abci_app", "--socket", str(app.socket), "--data", str(tmp_path / "other")),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    _, errors_bytes = await elsewhere.communicate()
    assert (elsewhere.returncode, b"another process listens" in errors_bytes) == (2, True)
    assert app.socket.exists()


async def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    app = AppProcess(tmp_path)
    app.data.write_text("a file where the folder should be")
    await app.start()
    status, errors = await app.ended()
    assert (app.ready_line, status) == ("", 2)
    assert errors.startswith("abci_app: cannot open the database in ")
