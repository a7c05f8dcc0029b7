"""Fixtures of the DA tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.da_layer.bench import LIMITS, Bench, bench_in
from tests.da_layer.network import (
    network,
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with network(tmp_path, limits=LIMITS, budget_bytes=100_000) as net:
        yield bench_in(net)
