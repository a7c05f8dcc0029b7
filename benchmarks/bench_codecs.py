"""How fast the codes of the DA layer are: reedsolo itself, `rs8` through its table, `isal`; then whole blobs.

    python benchmarks/bench_codecs.py [--k 10] [--n 14] [--mib 16]

Figures are MB of blob per second (10^6 bytes), one thread, best of three. "restore" replaces as many data rows by
parity rows as there are. reedsolo gets a few columns only, as it would take hours otherwise.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import reedsolo

from da_layer.codecs import codec_for
from da_layer.coding import decode_rows, encode_blob
from da_layer.gf256 import Matrix

REEDSOLO_COLUMNS = 300
STRIPE_BYTES = 16 * 1024


def rate(size: int, action: Callable[[], object]) -> float:
    """MB/s of an action that handles `size` bytes."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return size / 1e6 / min(times)


def bench_reedsolo(k: int, n: int) -> tuple[float, float]:
    """Encode and restore, one codeword of n symbols for each byte column."""
    coder = reedsolo.RSCodec(n - k, nsize=n)
    messages = [os.urandom(k) for _ in range(REEDSOLO_COLUMNS)]
    words = [bytes(coder.encode(message)) for message in messages]
    lost = list(range(min(k, n - k)))
    damaged = [bytes(len(lost)) + word[len(lost) :] for word in words]
    encode = rate(k * REEDSOLO_COLUMNS, lambda: [coder.encode(message) for message in messages])
    restore = rate(k * REEDSOLO_COLUMNS, lambda: [coder.decode(word, erase_pos=lost) for word in damaged])
    return encode, restore


def bench_codec(name: str, k: int, n: int, size: int) -> tuple[float, float]:
    """Encode and restore in the stripes that whole blobs are coded in, without hashing."""
    codec = codec_for(name, k, n)
    data: Matrix = np.frombuffer(os.urandom(k * STRIPE_BYTES), dtype=np.uint8).reshape(k, STRIPE_BYTES)
    rows = np.concatenate([data, codec.parity(data)])
    kept = list(range(n))[-k:] if n < 2 * k else list(range(k, 2 * k))
    stripes = max(1, size // data.nbytes)
    encode = rate(stripes * data.nbytes, lambda: [codec.parity(data) for _ in range(stripes)])
    restore = rate(stripes * data.nbytes, lambda: [codec.reconstruct(kept, rows[kept]) for _ in range(stripes)])
    return encode, restore


def bench_blob(name: str, k: int, n: int, size: int) -> tuple[float, float]:
    """encode_blob and decode_rows with all they do: code, row hashes, and encoding again after decoding."""
    data = os.urandom(size)
    blob = encode_blob(data, k=k, n=n, codec=name)
    rows = {index: blob.rows[index] for index in range(n - k, n)}
    encode = rate(size, lambda: encode_blob(data, k=k, n=n, codec=name))
    return encode, rate(size, lambda: decode_rows(blob.header, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, default=10, help="data rows")
    parser.add_argument("--n", type=int, default=14, help="data and parity rows")
    parser.add_argument("--mib", type=int, default=16, help="size of the blob")
    options = parser.parse_args()
    k, n, size = options.k, options.n, options.mib * 1024 * 1024
    if not 1 <= k < n <= 255 or size < 1:
        parser.error("1 <= k < n <= 255 and mib >= 1 should hold")
    print(f"k = {k}, n = {n}, {options.mib} MiB; MB/s of blob")
    print(f"{'':24}{'encode':>10}{'restore':>10}")
    for label, (encode, restore) in {
        "reedsolo": bench_reedsolo(k, n),
        "rs8 (table)": bench_codec("rs8", k, n, size),
        "isal": bench_codec("isal", k, n, size),
        "whole blob, rs8": bench_blob("rs8", k, n, size),
        "whole blob, isal": bench_blob("isal", k, n, size),
    }.items():
        print(f"{label:24}{encode:10.2f}{restore:10.2f}")


if __name__ == "__main__":
    main()
