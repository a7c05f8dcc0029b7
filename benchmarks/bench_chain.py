"""The chain beside CometBFT's Go kvstore.

python benchmarks/bench_chain.py [--only 1] [--alternations 3] [--seconds 10]
"""

import argparse
import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chain.kvstore import kvstore_offer
from benchmarks.chain.networks import ACCOUNTS, CHAIN_ID, network
from localnet.load.drive import Pace
from localnet.load.offer import Offer, spread
from localnet.load.results import LoadResult
from localnet.load.run import run_load
from localnet.load.signing import sign_transfers

LANES = 4


def show(name: str, r: LoadResult) -> None:
    print(
        f"{name:16} {r.committed_tps:7.0f} tx/s ({r.messages_per_s:.0f} messages/s), "
        f"finality p50 {r.finality_p50_s:.2f} p99 {r.finality_p99_s:.2f} s, "
        f"blocks {r.block_interval_median_s:.2f} max {r.block_interval_max_s:.2f} s, "
        f"cpu s/1000 tx app {r.cpu_s_per_1000_tx_app:.3f} engine {r.cpu_s_per_1000_tx_engine:.3f}, "
        f"lost {r.lost} failed {r.failed} refused {r.refused}{' RAN OUT' if r.ran_out else ''} {r.reasons or ''}",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", type=int, nargs="*", default=[1, 4], help="numbers of validators")
    parser.add_argument("--rate", type=float, default=None)
    options = parser.parse_args()
    num_txs = int((options.seconds + 3) * (options.rate or 9000))
    print(f"signing {num_txs} payments ...", flush=True)
    txs = sign_transfers(ACCOUNTS, num_txs, chain_id=CHAIN_ID, messages=1)
    ours = Offer(kind="transfers", lanes=spread(txs, len(ACCOUNTS), LANES))
    print(f"{ours.tx_bytes:.1f} bytes each")
    go = kvstore_offer(num_txs * 2, tx_bytes=round(ours.tx_bytes), lanes=LANES)
    pace = Pace(rate=options.rate, in_flight=4000, seconds=options.seconds, warm_up_s=2.0)
    for nodes in options.only:
        for _ in range(options.alternations):
            results = {}
            for application, offer in (("kvstore", go), ("outerstep", ours)):
                async with network(application, nodes) as running:
                    results[application] = await run_load(offer, pace, running.urls, running.measured)
                show(f"{application} x{nodes}", results[application])
            print(f"  ratio {results['outerstep'].committed_tps / results['kvstore'].committed_tps:.3f}", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
