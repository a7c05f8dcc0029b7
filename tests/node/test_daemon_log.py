"""A daemon's log: lines of JSON in the file, and for whom it is on the screen."""

import json
from pathlib import Path

import pytest

from node.daemon_log import DaemonLog


def test_people_read_text_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with DaemonLog(tmp_path / "log") as log:
        log.warning("unusable update", round=3)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.endswith("warning: unusable update  round=3\n")
    (line,) = (tmp_path / "log").read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["round"]) == ("unusable update", "warning", 3)


def test_programs_read_the_lines_of_the_file_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DaemonLog(tmp_path / "log", as_json=True) as log:
        log.info("committed", round=1, loss=2.5)
        log.info("settled", round=1, paid=10**12)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out == (tmp_path / "log").read_text()
    assert [json.loads(line)["event"] for line in shown.out.splitlines()] == ["committed", "settled"]


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    for index in (1, 2):
        with DaemonLog(tmp_path / "log") as log:
            log.info("start", index=index)
    assert [json.loads(line)["index"] for line in (tmp_path / "log").read_text().splitlines()] == [1, 2]
