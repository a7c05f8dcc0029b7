"""Several machines: nodes at their own addresses on slow links form a network, run a job, and survive partitions."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.localnet.namespace_trial import NODES, NOT_PERMITTED, SENT_BYTES

pytestmark = pytest.mark.network

BYTES_PER_S = 50_000_000 / 8


async def test_four_namespaces_on_slow_links_run_a_job_and_survive_cuts_of_one_and_of_two(short_folder: Path) -> None:
    """The trial itself fails where a part without two thirds makes a block, nodes differ, or money is lost."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.localnet.namespace_trial", str(short_folder / "net")),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode == NOT_PERMITTED:
        pytest.skip(errors.decode())
    assert process.returncode == 0, errors.decode()
    found = json.loads(output)
    assert found["link_s"] > 0.7 * SENT_BYTES / BYTES_PER_S
    assert found["verdicts"] == ["paid"] * NODES
    assert found["paid_one"] > 0
    assert found["paid_two"] > 0
