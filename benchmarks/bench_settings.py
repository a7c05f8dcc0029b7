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

from benchmarks.chain.networks import network
from benchmarks.chain.plan import IN_FLIGHT_ON_SEVERAL, WARM_UP_S, Load
from benchmarks.chain.prepared import Prepared
from localnet.load.drive import Pace
from localnet.load.run import run_load

AS_IT_IS: Final[dict[str, str]] = {}
VARIANTS: Final[list[dict[str, str]]] = [
    {"timeout_commit": '"0ms"'},
    {"timeout_commit": '"50ms"'},
    {"timeout_commit": '"200ms"'},
    {"timeout_commit": '"1s"'},
    {"skip_timeout_commit": "true"},
    {"flush_throttle_timeout": '"1ms"'},
    {"flush_throttle_timeout": '"100ms"'},
    {"peer_gossip_sleep_duration": '"2ms"'},
    {"peer_gossip_sleep_duration": '"100ms"'},
    {"send_rate": "5120000", "recv_rate": "5120000"},
    {"recheck": "false"},
    {"indexer": '"null"'},
]
"""Named after their first setting. CometBFT's own defaults are among them: 1s, 100ms, 100ms, 5120000."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate", type=float, default=800.0, help="transactions a second")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured window of each")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the settings")
    options = parser.parse_args()
    pace = Pace(rate=options.rate, in_flight=IN_FLIGHT_ON_SEVERAL, seconds=options.seconds, warm_up_s=WARM_UP_S)
    load = Load(part="settings", application="outerstep", nodes=options.nodes, round_index=0, pace=pace)
    offer = Prepared(lambda text, share: None).offer(load)
    print(f"{options.nodes} validators, {options.rate:.0f} tx/s offered; CPU is of all nodes together")
    print(f"{'':34} {'p50 s':>7} {'p99 s':>7} {'block s':>8} {'longest':>8} {'app':>7} {'engine':>7}  CPU s/1000 tx")
    for settings in [AS_IT_IS, *VARIANTS, AS_IT_IS]:
        name, value = next(iter(settings.items()), ("", ""))
        if options.only and settings and name not in options.only:
            continue
        async with network("outerstep", options.nodes, settings) as running:
            r = await run_load(offer, pace, running.urls, running.measured)
        said = f"{name} = {value}" if settings else "as it is"
        print(
            f"{said:34} {r.finality_p50_s:7.3f} {r.finality_p99_s:7.3f} {r.block_interval_median_s:8.3f} "
            f"{r.block_interval_max_s:8.3f} {r.cpu_s_per_1000_tx_app:7.3f} {r.cpu_s_per_1000_tx_engine:7.3f}"
            f"{'' if r.clean else f'  lost {r.lost} failed {r.failed} refused {r.refused}'}",
            flush=True,
        )


if __name__ == "__main__":
    uvloop.run(main())
