"""Four nodes in namespaces of their own on links of 50 Mbit/s: ``python -m tests.localnet.namespace_trial HOME``.

Prints one JSON object. Exit status 77, with the reason on standard error, where namespaces are not permitted.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from localnet.chaos.isolation import isolate
from localnet.chaos.partition import NamespaceNet, address_of, cut_and_heal, lay_out, make_network
from tests.localnet.players import make_players, open_test_job, wait_for_phase
from tests.localnet.test_faults import Pusher, assert_all_nodes_agree, keep_paying, run_honest_round

NODES: Final = 4
NOT_PERMITTED: Final = 77
SENT_BYTES: Final = 6_000_000
PORT: Final = 9000
PHASE_BLOCKS: Final = 40
RECEIVER: Final = """
import socket
with socket.create_server(("0.0.0.0", 9000)) as server:
    print("listening", flush=True)
    peer, _ = server.accept()
    with peer:
        while peer.recv(1 << 16):
            pass
        peer.sendall(b"done")
"""
SENDER: Final = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 9000)) as peer:
    started = time.monotonic()
    peer.sendall(bytes(int(sys.argv[2])))
    peer.shutdown(socket.SHUT_WR)
    peer.recv(4)
    print(time.monotonic() - started)
"""


def measure_link() -> float:
    """Seconds that SENT_BYTES take from one node's namespace to another's."""
    there = ["ip", "netns", "exec", "node1", sys.executable, "-c", RECEIVER]
    with subprocess.Popen(there, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        here = ["ip", "netns", "exec", "node0", sys.executable, "-c", SENDER, address_of(1), str(SENT_BYTES)]
        return float(subprocess.run(here, capture_output=True, text=True, check=True, timeout=60).stdout)


async def run_round(net: NamespaceNet) -> list[str]:
    """One round of a training job with a worker at each node; the verdicts."""
    job_id = await open_test_job(net, rounds=1, min_workers=NODES, max_workers=NODES, blocks=PHASE_BLOCKS)
    players = await make_players(net, [f"worker{index}" for index in range(NODES)], nodes=range(NODES))
    async with contextlib.AsyncExitStack() as stack:
        for player in players:
            await stack.enter_async_context(player.client)
        pusher = Pusher(await stack.enter_async_context(net.client(0, net.faucet)))
        await asyncio.gather(*(player.join(job_id) for player in players))
        await wait_for_phase(players[0].client, job_id, 0, ["train"], pusher.push)
        settlement = await run_honest_round(job_id, 0, players, pusher)
    return [outcome.verdict for outcome in settlement.outcomes]


async def try_all(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"link_s": measure_link()}
    async with NamespaceNet(make_network(home, NODES), nodes=NODES) as net:
        found["verdicts"] = await run_round(net)
        for name, smaller in (("one", [3]), ("two", [1, 2])):
            stop = asyncio.Event()
            load = asyncio.create_task(keep_paying(net, stop))
            try:
                found[name] = await cut_and_heal(net, smaller)
            finally:
                stop.set()
            found[f"paid_{name}"] = await load
        await assert_all_nodes_agree(net)
    return found


def main() -> int:
    reason = isolate(sys.argv[1:], "tests.localnet.namespace_trial")
    if reason is not None:
        print(reason, file=sys.stderr)
        return NOT_PERMITTED
    lay_out(NODES)
    started = time.monotonic()
    found = asyncio.run(try_all(Path(sys.argv[1])))
    print(json.dumps(found | {"seconds": round(time.monotonic() - started, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
