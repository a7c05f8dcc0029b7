"""`topk`: of each flat chunk of 4096 parameters the k largest, as sign and place, with one scale for the chunk.

The recipe of SparseLoCo (arXiv 2508.15706) with one-bit values: k = 74 costs about 8.4 bits for each element sent, so
about 1/207 of fp32. A last, shorter chunk of n parameters sends ceil(k n / 4096) of them.

Body: one scale code per chunk (code 0: the chunk sends nothing), then over all elements sent, chunk after chunk, places
ascending: the signs (1 = negative) as packed bits, then the Rice coding (training.compressors.rice) of the gaps. The
first gap of a chunk is its first place, each later one is the distance to the place before, less one: places can
neither repeat nor go back. The Rice shift follows from k alone.
"""

import numpy as np
from numpy.typing import NDArray

from training.compressors.levels import LEVELS, ZERO_LEVEL, codes_for
from training.compressors.rice import decode_rice, encode_rice, packed_bytes, unpack_bits
from training.config import CHUNK
from training.errors import InvalidPayload
from training.fixed_point import Float32, Int64


class TopK:
    """Chunked top-k with one-bit values."""

    codec: int = 2

    def __init__(self, top_k: int) -> None:
        self.top_k = top_k
        # The best shift for geometric gaps of mean CHUNK / k is about log2(0.69 x mean).
        self._shift = max(0, (CHUNK * 69 // (100 * top_k)).bit_length() - 1)

    def encode(self, values_P: Float32) -> bytes:
        counts_C = self._counts(len(values_P))
        padded = np.zeros(len(counts_C) * CHUNK, dtype=np.float32)
        padded[: len(values_P)] = values_P
        chunks_CN = padded.reshape(-1, CHUNK)
        picked_CN = _largest(np.abs(chunks_CN), counts_C, len(values_P))
        means_C = np.abs(chunks_CN).astype(np.float64).sum(axis=1, where=picked_CN) / counts_C
        codes_C = codes_for(means_C, at_least=False)
        picked_CN &= (codes_C != ZERO_LEVEL)[:, None]
        places = np.flatnonzero(picked_CN).astype(np.int64)
        signs = np.packbits(np.signbit(padded[places]))
        gaps = _gaps(places, np.where(codes_C != ZERO_LEVEL, counts_C, 0))
        return codes_C.astype(np.uint8).tobytes() + signs.tobytes() + encode_rice(gaps, self._shift)

    def decode(self, body: memoryview, num_parameters: int) -> Int64:
        smallest, largest = self.body_bounds(num_parameters)
        if not smallest <= len(body) <= largest:
            raise InvalidPayload(f"a top-k body for {num_parameters} parameters cannot have {len(body)} bytes")
        counts_C = self._counts(num_parameters)
        codes_C = np.frombuffer(body, dtype=np.uint8, count=len(counts_C))
        counts_C = np.where(codes_C != ZERO_LEVEL, counts_C, 0)
        num_sent = int(counts_C.sum())
        signs_end = len(codes_C) + packed_bytes(num_sent)
        if len(body) < signs_end:
            raise InvalidPayload("the signs are cut short")
        signs = unpack_bits(body[len(codes_C) : signs_end], num_sent).astype(np.int64)
        gaps = decode_rice(body[signs_end:], num_sent, self._shift)
        places = _places(gaps, counts_C, num_parameters)
        values = np.zeros(num_parameters, dtype=np.int64)
        values[places] = np.repeat(LEVELS[codes_C], counts_C) * (1 - 2 * signs)
        return values

    def body_bounds(self, num_parameters: int) -> tuple[int, int]:
        num_chunks = -(-num_parameters // CHUNK)
        num_sent = int(self._counts(num_parameters).sum())
        # The gaps of one chunk add up to less than CHUNK, so its quotients to at most CHUNK >> shift.
        unary_bits = num_sent + num_chunks * (CHUNK >> self._shift)
        largest = num_chunks + packed_bytes(num_sent) + packed_bytes(num_sent * self._shift) + packed_bytes(unary_bits)
        return num_chunks, largest

    def _counts(self, num_parameters: int) -> Int64:
        """How many elements each chunk sends, int64 [chunks]."""
        num_chunks = -(-num_parameters // CHUNK)
        counts_C = np.full(num_chunks, self.top_k, dtype=np.int64)
        last = num_parameters - (num_chunks - 1) * CHUNK
        counts_C[-1] = -(-self.top_k * last // CHUNK)
        return counts_C


def _largest(magnitudes_CN: Float32, counts_C: Int64, num_parameters: int) -> NDArray[np.bool_]:
    """Which elements are sent: per row the counts_C largest, padding never."""
    picked_CN = np.zeros(magnitudes_CN.shape, dtype=np.bool_)
    full = len(magnitudes_CN) - 1
    if full:
        top = int(counts_C[0])
        indices = np.argpartition(magnitudes_CN[:full], CHUNK - top, axis=1)[:, CHUNK - top :]
        np.put_along_axis(picked_CN[:full], indices, True, axis=1)
    last = num_parameters - full * CHUNK
    top = int(counts_C[-1])
    picked_CN[full, np.argpartition(magnitudes_CN[full, :last], last - top)[last - top :]] = True
    return picked_CN


def _chunk_starts(counts_C: Int64) -> tuple[Int64, Int64]:
    """(chunks that send, position of each one's first element among all elements sent)."""
    sending = np.flatnonzero(counts_C).astype(np.int64)
    ends = np.cumsum(counts_C[sending])
    return sending, ends - counts_C[sending]


def _gaps(places: Int64, counts_C: Int64) -> Int64:
    sending, firsts = _chunk_starts(counts_C)
    gaps = np.diff(places, prepend=np.int64(0)) - 1
    gaps[firsts] = places[firsts] - sending * CHUNK
    return gaps


def _places(gaps: Int64, counts_C: Int64, num_parameters: int) -> Int64:
    """Flat places, each within its own chunk.

    Raises: InvalidPayload when one lies outside. A gap is at most 8 x the body's bytes x 2^shift, far below 2^63.
    """
    sending, firsts = _chunk_starts(counts_C)
    steps = gaps + 1
    running = np.cumsum(steps)
    before = running[firsts] - steps[firsts]
    within = running - np.repeat(before, counts_C[sending]) - 1
    places = within + np.repeat(sending * CHUNK, counts_C[sending])
    if len(places) and (int(within.max()) >= CHUNK or int(places.max()) >= num_parameters):
        raise InvalidPayload("an index lies outside its chunk")
    return places
