"""Signatures that are verified in other processes: the same answers, also when a process dies or talks nonsense."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

from abci_app import verifiers as module
from abci_app.transactions import decode_transaction, signature_record
from abci_app.verifier_process import HEADER, serve
from abci_app.verifiers import VerifierProcesses
from primitives.keys import verify_record
from tests.abci_app.kit import transfer

GOOD = [signature_record(decode_transaction(transfer(nonce))[0]) for nonce in range(6)]
BAD = [record[:-1] + bytes([record[-1] ^ 1]) for record in GOOD]
RECORDS = [GOOD[0], BAD[1], GOOD[2], bytes(128), b"\xff" * 128, GOOD[5]]
WANTED = [1, 0, 1, 0, 0, 1]


@pytest.fixture
async def verifiers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VerifierProcesses]:
    monkeypatch.setattr(module, "RESTART_DELAY_S", 0.05)
    processes = VerifierProcesses(2)
    await processes.start()
    yield processes
    await processes.close()


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    assert running() == []


def running() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "abci_app.verifier_process" in each.cmdline()]


async def test_they_say_what_verifying_here_says(verifiers: VerifierProcesses) -> None:
    assert [int(verify_record(record)) for record in RECORDS] == WANTED
    assert list(await verifiers.verify(RECORDS)) == WANTED
    assert list(await verifiers.verify([])) == []


async def test_batches_at_the_same_time_are_not_mixed_up(verifiers: VerifierProcesses) -> None:
    batches = [[GOOD[i % 6] if (i * j) % 3 else BAD[i % 6] for i in range(j)] for j in range(1, 40)]
    answers = await asyncio.gather(*(verifiers.verify(batch) for batch in batches))
    assert [list(answer) for answer in answers] == [[int(record in GOOD) for record in batch] for batch in batches]


async def test_a_killed_process_loses_no_answer_and_is_replaced(verifiers: VerifierProcesses) -> None:
    async with asyncio.timeout(20):
        batches = [asyncio.create_task(verifiers.verify(RECORDS * 20)) for _ in range(20)]
        await asyncio.sleep(0)
        killed = running()
        for process in killed:
            process.kill()
        assert [list(answer) for answer in await asyncio.gather(*batches)] == [WANTED * 20] * 20
        while len(replaced := [each for each in running() if each not in killed]) < 2:
            await asyncio.sleep(0.02)
    assert list(await verifiers.verify(RECORDS)) == WANTED
    assert len(replaced) == 2


async def test_a_process_that_hangs_is_given_up_and_replaced(
    verifiers: VerifierProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.3)
    stopped = running()
    for process in stopped:
        process.suspend()
    async with asyncio.timeout(20):
        assert [list(answer) for answer in await asyncio.gather(*map(verifiers.verify, [RECORDS] * 4))] == [WANTED] * 4
        while len([each for each in running() if each not in stopped]) < 2:
            await asyncio.sleep(0.02)
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 20.0)
    assert list(await verifiers.verify(RECORDS)) == WANTED


async def test_where_no_process_can_be_started_threads_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    processes = VerifierProcesses(1)
    await processes.start()
    assert list(await processes.verify(RECORDS)) == WANTED
    await processes.close()


async def test_answers_to_what_nobody_asked_are_not_believed(
    verifiers: VerifierProcesses,
) -> None:
    """A node that takes one answer for another would execute forged transactions."""
    for worker in verifiers._workers:
        assert worker._stdin is not None
        worker._stdin.write(HEADER.pack(7, 1) + GOOD[0])
    async with asyncio.timeout(20):
        assert list(await verifiers.verify(BAD)) == [0] * len(BAD)


def test_the_process_answers_each_batch_and_ends_with_its_input() -> None:
    answers = io.BytesIO()
    whole = HEADER.pack(1, 6) + b"".join(RECORDS) + HEADER.pack(2, 0)
    serve(io.BytesIO(whole + HEADER.pack(3, 2) + GOOD[0]), answers)
    assert answers.getvalue() == HEADER.pack(1, 6) + bytes(WANTED) + HEADER.pack(2, 0)
