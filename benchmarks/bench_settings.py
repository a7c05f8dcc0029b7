"""What each setting of the engine does: finality with one setting at a time changed from what nodes are given.

    python benchmarks/bench_settings.py [--nodes 4] [--rate 800] [--seconds 6] [--only NAME ...]

The first and the last line are the configuration as it is: how far they differ is the noise.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chain.networks import ACCOUNTS, network
from benchmarks.chain.payments import sign_payments
from benchmarks.chain.prepared import LANES
from localnet.load.drive import Pace
from localnet.load.offer import Offer, spread
from localnet.load.run import run_load

AS_IT_IS: Final = ("as it is", {})
VARIANTS: Final[list[tuple[str, dict[str, str]]]] = [
    ("timeout_commit", {"timeout_commit": '"0ms"'}),
    ("timeout_commit", {"timeout_commit": '"50ms"'}),
    ("timeout_commit", {"timeout_commit": '"200ms"'}),
    ("timeout_commit", {"timeout_commit": '"1s"'}),
    ("skip_timeout_commit", {"skip_timeout_commit": "true"}),
    ("flush_throttle_timeout", {"flush_throttle_timeout": '"1ms"'}),
    ("flush_throttle_timeout", {"flush_throttle_timeout": '"100ms"'}),
    ("peer_gossip_sleep_duration", {"peer_gossip_sleep_duration": '"2ms"'}),
    ("peer_gossip_sleep_duration", {"peer_gossip_sleep_duration": '"100ms"'}),
    ("send_rate", {"send_rate": "5120000", "recv_rate": "5120000"}),
    ("recheck", {"recheck": "false"}),
    ("indexer", {"indexer": '"null"'}),
]
"""CometBFT's own defaults among them: 1s, 100ms, 100ms, 5120000."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate", type=float, default=800.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured window of each")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the settings")
    options = parser.parse_args()
    pace = Pace(rate=options.rate, in_flight=2400, seconds=options.seconds, warm_up_s=2.0)
    txs = sign_payments(ACCOUNTS, int(options.rate * (options.seconds + 6)), 1)
    offer = Offer(kind="transfers", lanes=spread(txs, len(ACCOUNTS), LANES))
    print(f"{options.nodes} validators, {options.rate:.0f} tx/s offered; CPU is of all nodes together")
    print(f"{'':34} {'p50 s':>7} {'p99 s':>7} {'block s':>8} {'longest':>8} {'app':>7} {'engine':>7}  CPU s/1000 tx")
    for name, settings in [AS_IT_IS, *VARIANTS, AS_IT_IS]:
        if options.only and settings and name not in options.only:
            continue
        async with network("outerstep", options.nodes, settings) as running:
            r = await run_load(offer, pace, running.urls, running.measured)
        said = " ".join(f"{key} = {value}" for key, value in list(settings.items())[:1]) or name
        print(
            f"{said:34} {r.finality_p50_s:7.3f} {r.finality_p99_s:7.3f} {r.block_interval_median_s:8.3f} "
            f"{r.block_interval_max_s:8.3f} {r.cpu_s_per_1000_tx_app:7.3f} {r.cpu_s_per_1000_tx_engine:7.3f}"
            f"{'' if r.clean else f'  lost {r.lost} failed {r.failed} refused {r.refused}'}",
            flush=True,
        )


if __name__ == "__main__":
    uvloop.run(main())
