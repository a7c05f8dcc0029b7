"""One running network of four nodes, shared by the tests of a file."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from localnet.network import Localnet


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """A folder with a short path, since a node's Unix socket lies in it."""
    with TemporaryDirectory(prefix="on-") as name:
        yield Path(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(short_folder: Path) -> AsyncIterator[Localnet]:
    async with Localnet(short_folder / "net", nodes=4) as network:
        yield network
