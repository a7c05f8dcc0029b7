"""FAULTS D28: memory of encoding, dispersal, retrieval and row servers stays within the factors of docs/da.md.

Publisher, reader and the four nodes each run in a process of their own, so that each peak is one party's alone.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from primitives.encoding import encode
from tests.da_layer.processes import ROOT, NodeProcesses, node_processes

BLOB_MIB = 32
SLACK_MIB = 32
"""For buffers of sockets and threads, and what the allocator keeps."""
PUBLISHER_FACTOR = 4
"""Times the blob: the blob itself, and its rows (n/k = 3)."""
READER_FACTOR = 4
"""Times the blob: the blob itself and 3 more; and 16 MiB for each of four nodes."""
NODE_FACTOR = 3 * 0.75
"""Times the blob: a quarter of the stake gets rows of 3/4 of its size, which a check holds up to three times."""
SCRIPT = """
import asyncio, json, resource, sys
import aiohttp
from da_layer.client import disperse, retrieve
from da_layer.coding import encode_blob
from primitives.blobs import BlobHeader, ServiceSet
from primitives.encoding import decode, encode
from tests.da_layer.network import promise_for, sign

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def content(mib):
    return bytes(range(256)) * (mib * 4096)

async def publish(members, mib):
    blob = encode_blob(content(mib), k=8, n=24)
    signed = sign(promise_for(blob, members))
    async with aiohttp.ClientSession() as session:
        await disperse(session, blob, signed.promise, signed.signature, signed.public_key, members, timeout_s=60)
    return encode(blob.header).hex()

async def read(members, mib, header):
    async with aiohttp.ClientSession() as session:
        data = await retrieve(session, decode(bytes.fromhex(header), BlobHeader), members, timeout_s=60)
    assert data[-1000:] == content(1)[-1000:] and len(data) == mib << 20

work = {"publish": publish, "read": read}[sys.argv[1]]
members = decode(bytes.fromhex(sys.argv[2]), ServiceSet)
small = asyncio.run(work(members, 1, *sys.argv[4:5]))
before = peak_mib()
large = asyncio.run(work(members, int(sys.argv[3]), *sys.argv[5:6]))
print(json.dumps({"headers": [small, large], "grown_mib": peak_mib() - before}))
"""


def run(net: NodeProcesses, what: str, *headers: str) -> dict[str, Any]:
    """One party in a process of its own: a blob of 1 MiB first, then the large one, whose memory is measured."""
    command = [sys.executable, "-c", SCRIPT, what, encode(net.members).hex(), str(BLOB_MIB), *headers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_memory_of_each_party_stays_within_its_documented_factor(tmp_path: Path) -> None:
    with node_processes(tmp_path) as net:
        published = run(net, "publish")
        read = run(net, "read", *published["headers"])
        net.end()
    nodes = [node.last_words["peak_mib"] - node.first_peak_mib for node in net.nodes]
    assert published["grown_mib"] < PUBLISHER_FACTOR * BLOB_MIB + SLACK_MIB
    assert read["grown_mib"] < READER_FACTOR * BLOB_MIB + 16 * len(nodes) + SLACK_MIB
    assert max(nodes) < NODE_FACTOR * BLOB_MIB + SLACK_MIB
