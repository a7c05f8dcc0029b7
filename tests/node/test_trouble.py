"""A chain that lives and does nothing: a full disk stops it until there is room, a dead consensus starts it again."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from node import children, trouble
from node.children import Group
from node.trouble import HALTS, DiskRoom, EngineHalt
from tests.node.test_supervision import SLEEPER, STUBBORN, pid_of, ready_again, running, spec, until_gone


def test_a_full_disk_is_one_with_too_little_left_until_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "MIN_FREE_BYTES", 0)
    room = DiskRoom(tmp_path)
    assert room() is None
    monkeypatch.setattr(trouble, "MIN_FREE_BYTES", 1 << 62)
    assert "is full" in (room() or "")
    monkeypatch.setattr(trouble, "MIN_FREE_BYTES", 0)
    monkeypatch.setattr(trouble, "ENOUGH_FREE_BYTES", 1 << 62)
    assert room(), "a little more than the least is not enough to go on"
    monkeypatch.setattr(trouble, "ENOUGH_FREE_BYTES", 0)
    assert room() is None


def test_a_disk_that_is_gone_is_trouble_too(tmp_path: Path) -> None:
    assert "cannot be read" in (DiskRoom(tmp_path / "nowhere")() or "")


@pytest.mark.parametrize("words", HALTS)
def test_an_engine_that_gave_up_is_told_once_for_each_time_it_says_so(tmp_path: Path, words: bytes) -> None:
    log = tmp_path / "engine.log"
    halt = EngineHalt(log)
    assert halt() is None
    log.write_bytes(b"I committed state\nE " + words[:7])
    assert halt() is None
    with log.open("ab") as file:
        file.write(words[7:] + b" module=some\n")
    assert HALTS[words] in (halt() or "")
    assert halt() is None
    log.write_bytes(b"E " + words)
    assert halt(), "a log that was cut is read from its beginning"
    assert halt() is None


def test_what_a_log_said_before_the_watch_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"".join(HALTS))
    assert EngineHalt(log)() is None


async def test_a_hindered_group_is_stopped_and_goes_on_once_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    monkeypatch.setattr(children, "MAX_QUICK_FAILURES", 1)
    reasons: list[str] = []
    group = Group("one", [spec(tmp_path, "a", SLEEPER)], hindrance=lambda: reasons[0] if reasons else None)
    async with running(group) as task:
        before = pid_of(tmp_path, "a")
        reasons.append("the disk is full")
        await until_gone(before)
        async with asyncio.timeout(10):
            while (tmp_path / "a.pid").exists():
                await asyncio.sleep(0.02)
        await asyncio.sleep(0)
        assert not group.ready.is_set()
        reasons.clear()
        async with asyncio.timeout(15):
            await group.ready.wait()
        assert pid_of(tmp_path, "a") != before
        assert not task.done()


async def test_a_group_whose_work_has_died_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    monkeypatch.setattr(children, "FIRST_BACKOFF_S", 0.01)
    deaths: list[str] = []
    group = Group("one", [spec(tmp_path, "a", SLEEPER)], failure=lambda: deaths.pop() if deaths else None)
    async with running(group):
        before = pid_of(tmp_path, "a")
        deaths.append("consensus has died")
        await ready_again(group, tmp_path, "a", before)


async def test_a_member_that_does_not_stop_after_another_has_died_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "AFTER_FAILURE_S", 0.1)
    monkeypatch.setattr(children, "FIRST_BACKOFF_S", 0.01)
    group = Group("pair", [spec(tmp_path, "a", SLEEPER), spec(tmp_path, "b", STUBBORN)])
    async with running(group):
        before = pid_of(tmp_path, "b")
        os.kill(pid_of(tmp_path, "a"), signal.SIGKILL)
        await ready_again(group, tmp_path, "b", before)
        await until_gone(before)
        monkeypatch.setattr(children, "STOP_S", 0.1)
