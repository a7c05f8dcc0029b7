"""What all tests need before the first one runs."""

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C even where a script started pytest in the background, which has it ignore SIGINT.

    Programs inherit an ignored signal, so those that tests start and interrupt would never notice.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
