"""A large file passes through client and provider without being held in memory."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, resource, sys
from pathlib import Path
import aiohttp
from storage.client import StorageClient
from storage.limits import ServiceLimits
from tests.storage.support import CHAIN_ID, OPERATORS, PUBLIC_KEYS, Chain, start_node, some_bytes
from storage.terms import DealTerms
from storage.tree import FileTree

MIB = 1024 * 1024
home = Path(sys.argv[1])

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def write(name, mib):
    with open(home / name, "wb") as file:
        for number in range(mib):
            file.write(some_bytes(MIB, seed=number))
    return home / name

async def there_and_back(node, chain, client, path):
    tree = FileTree.build(path)
    deal = DealTerms(id=len(chain.deals) + 1, root=tree.root, size=tree.size, tier="hot", end_height=9, owner=b"",
                     providers=(OPERATORS[0],), series="", status="pending")
    chain.deals[deal.id] = deal
    await client.upload(path, deal, {OPERATORS[0]: node.url}, chain_id=CHAIN_ID, service_keys=PUBLIC_KEYS)
    await client.download(deal.root, deal.size, [node.url], home / "back")
    assert FileTree.build(home / "back").root == deal.root

async def main():
    chain = Chain()
    node = await start_node(home / "node", chain, limits=ServiceLimits(cache_bytes=2 * MIB))
    async with aiohttp.ClientSession() as session:
        client = StorageClient(session)
        await there_and_back(node, chain, client, write("small", 6))
        before = peak_mib()
        await there_and_back(node, chain, client, write("large", 64))
        print(peak_mib() - before)
    await node.stop()

asyncio.run(main())
"""


def test_memory_stays_bounded_for_a_large_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 16, "64 MiB passed through; only a few segments may be in memory at a time"
