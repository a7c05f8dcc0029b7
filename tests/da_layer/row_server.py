"""One row server as a process: ``python -m tests.da_layer.row_server DIR NUMBER``, for tests only.

Says where it listens and its peak of memory as one line of JSON, takes a line with the service set (hex of its
canonical form), serves until its standard input ends, and says its peak again. With `--lie` it serves wrong rows.
"""

import argparse
import asyncio
import json
import resource
import sys
from pathlib import Path

import structlog
from aiohttp import web

from da_layer.store import RowStore
from primitives.blobs import ServiceSet
from primitives.encoding import decode
from primitives.keys import PrivateKey
from tests.da_layer.network import FakeChain, Handler, Node, changing_rows, serve, wrong_bytes


def service_key(number: int) -> PrivateKey:
    """What the server of this number signs with."""
    return PrivateKey.from_seed(f"service {number}")


def say(**fields: object) -> None:
    print(json.dumps(fields | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)


async def lie(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Takes rows as it should, and serves wrong ones."""
    is_read = request.path.endswith("/rows")
    return await (changing_rows(wrong_bytes)(request, handler) if is_read else handler(request))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("number", type=int)
    parser.add_argument("--lie", action="store_true")
    chosen = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    chain = FakeChain()
    node = Node(RowStore(chosen.path), service_key(chosen.number))
    node.fault = lie if chosen.lie else None
    runner = await serve(node, chain, None)
    say(url=node.url)
    members = decode(bytes.fromhex(await asyncio.to_thread(sys.stdin.readline)), ServiceSet)
    chain.sets[members.version] = members
    say(ready=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    say(metrics=node.store.metrics())


if __name__ == "__main__":
    asyncio.run(main())
