"""What all tests need before the first one runs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from abci_app.__main__ import ASSERT_ORDER_VARIABLE


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C even where a script started pytest in the background, which has it ignore SIGINT.

    Programs inherit an ignored signal, so those that tests start and interrupt would never notice.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def illegal_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every application that a test starts, in whichever process, asserts ABCI's grammar and reports to this file."""
    path = tmp_path_factory.mktemp("abci") / "illegal-calls"
    before = os.environ.get(ASSERT_ORDER_VARIABLE)
    os.environ[ASSERT_ORDER_VARIABLE] = str(path)
    yield path
    if before is None:
        del os.environ[ASSERT_ORDER_VARIABLE]
    else:
        os.environ[ASSERT_ORDER_VARIABLE] = before


@pytest.fixture(autouse=True)
def no_illegal_calls(illegal_calls: Path) -> Iterator[None]:
    """Fail where an engine broke the grammar: a supervisor would only restart the application."""
    yield
    if illegal_calls.exists():
        report = illegal_calls.read_text()
        illegal_calls.unlink()
        pytest.fail(report)
