"""How fast each compressor encodes and decodes, and how small its payloads are.

    python benchmarks/bench_compressors.py [--parameters 4000000] [--repeats 3]

MB/s are of the float32 form (4 bytes per parameter). Updates are heavy-tailed noise, so ratios of top-k are those of
evenly spread indices; trained updates cluster a little and come out slightly smaller.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from training.compressors import Compressor, Int8, Raw, TopK

CASES: dict[str, Compressor] = {
    "none": Raw(),
    "int8": Int8(),
    "topk k=512": TopK(512),
    "topk k=74": TopK(74),
    "topk k=32": TopK(32),
}


def best_seconds(action: Callable[[], object], repeats: int) -> float:
    """Shortest of `repeats` runs, seconds."""
    durations = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        durations.append(time.perf_counter() - started)
    return min(durations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    values = np.random.Generator(np.random.PCG64(1)).standard_normal(options.parameters)
    update_P = (0.001 * values**3).astype(np.float32)
    megabytes = update_P.nbytes / 1e6
    print(f"{options.parameters:,} parameters, {megabytes:.1f} MB as float32")
    print(f"{'compressor':<12} {'bytes':>12} {'ratio':>8} {'encode MB/s':>12} {'decode MB/s':>12}")
    for name, compressor in CASES.items():
        body = compressor.encode(update_P)
        encode_s = best_seconds(lambda c=compressor: c.encode(update_P), options.repeats)  # type: ignore[misc]
        decode_s = best_seconds(
            lambda c=compressor, b=body: c.decode(memoryview(b), options.parameters),  # type: ignore[misc]
            options.repeats,
        )
        ratio = update_P.nbytes / len(body)
        print(f"{name:<12} {len(body):>12,} {ratio:>8.1f} {megabytes / encode_s:>12.0f} {megabytes / decode_s:>12.0f}")


if __name__ == "__main__":
    main()
