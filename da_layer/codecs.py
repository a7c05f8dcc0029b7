"""The erasure codes behind one small interface: data rows in, parity rows out, and data rows back from any k of n.

A code works on columns: byte j of every row together form one codeword over GF(2^8), so rows may be coded in stripes
of any width. Neither code notices a wrong row: only rows proven against the commitment may get here.
"""

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import reedsolo
from pyeclib.ec_iface import ECDriver

from da_layer.errors import InvalidBlob, NotEnoughRows, WrongRow
from da_layer.gf256 import Matrix, PackedMatrix, invert
from primitives.blobs import CODECS, MAX_ROWS

_FRAGMENT_HEADER_BYTES: Final = 80
_reedsolo_lock = threading.Lock()
"""reedsolo keeps its tables in module globals and rebuilds them in every RSCodec()."""


class Codec(Protocol):
    """A systematic code of k data rows and n - k parity rows. Shapes: K data rows, P parity rows, W bytes of a row."""

    k: int
    n: int

    def parity(self, data_KW: Matrix) -> Matrix:
        """Parity rows k..n-1 of the data rows, uint8 [P, W]."""

    def reconstruct(self, indices: Sequence[int], rows_KW: Matrix) -> Matrix:
        """The data rows, uint8 [K, W], from any k rows; `rows_KW[j]` is the row with number `indices[j]`.

        Raises: NotEnoughRows, WrongRow (index out of range or twice).
        """


@lru_cache(maxsize=64, typed=True)
def codec_for(name: str, k: int, n: int) -> Codec:
    """The code `name` with these parameters; safe to share between threads.

    Raises: InvalidBlob for an unknown name or parameters outside 1 <= k <= n <= 255.
    """
    if name not in CODECS:
        raise InvalidBlob(f"codec is {name!r}; it should be one of {', '.join(CODECS)}")
    if type(k) is not int or type(n) is not int or not 1 <= k <= n <= MAX_ROWS:
        raise InvalidBlob(f"k is {k!r} and n is {n!r}; 1 <= k <= n <= {MAX_ROWS} should hold")
    return ReedSoloCodec(k, n) if name == "rs8" else IsalCodec(k, n)


@lru_cache(maxsize=64)
def reedsolo_parity_matrix(k: int, n: int) -> Matrix:
    """What reedsolo's encoder adds to each unit message, uint8 [n - k, k]: the parity part of its generator matrix."""
    matrix = np.zeros((n - k, k), dtype=np.uint8)
    if k == n:
        return matrix
    with _reedsolo_lock:
        coder = reedsolo.RSCodec(n - k, nsize=n)
        for position in range(k):
            message = bytes(position) + b"\x01" + bytes(k - position - 1)
            matrix[:, position] = np.frombuffer(bytes(coder.encode(message)[k:]), dtype=np.uint8)
    return matrix


@lru_cache(maxsize=64)
def _reedsolo_inverse(k: int, n: int, indices: tuple[int, ...]) -> PackedMatrix:
    generator = np.concatenate([np.eye(k, dtype=np.uint8), reedsolo_parity_matrix(k, n)])
    return PackedMatrix(invert(generator[list(indices)]))


class ReedSoloCodec:
    """reedsolo's code, one codeword per byte column, through tables of its own generator matrix: bit-identical."""

    def __init__(self, k: int, n: int) -> None:
        self.k = k
        self.n = n
        self._encoder = PackedMatrix(reedsolo_parity_matrix(k, n))

    def parity(self, data_KW: Matrix) -> Matrix:
        return self._encoder.apply(data_KW)

    def reconstruct(self, indices: Sequence[int], rows_KW: Matrix) -> Matrix:
        _check_indices(indices, rows_KW, self.k, self.n)
        return _reedsolo_inverse(self.k, self.n, tuple(indices)).apply(rows_KW)


class IsalCodec:
    """ISA-L's Cauchy code through pyeclib; releases the GIL while it computes.

    pyeclib puts a header of 80 bytes before each fragment. Headers depend on the shape alone, so they are cut off
    here and taken again from the code of zeros of the same shape when pyeclib has to decode.
    """

    def __init__(self, k: int, n: int) -> None:
        self.k = k
        self.n = n
        self._driver = ECDriver(k=k, m=n - k, ec_type="isa_l_rs_cauchy") if n > k else None
        self._headers = lru_cache(maxsize=4)(self._headers_for)

    def parity(self, data_KW: Matrix) -> Matrix:
        parity = np.empty((self.n - self.k, data_KW.shape[1]), dtype=np.uint8)
        if self._driver is not None:
            fragments = self._driver.encode(data_KW.tobytes())
            for row, fragment in zip(parity, fragments[self.k :], strict=True):
                row[:] = np.frombuffer(fragment, dtype=np.uint8, offset=_FRAGMENT_HEADER_BYTES)
        return parity

    def reconstruct(self, indices: Sequence[int], rows_KW: Matrix) -> Matrix:
        _check_indices(indices, rows_KW, self.k, self.n)
        if self._driver is None:
            return rows_KW[np.argsort(indices)]
        headers = self._headers(rows_KW.shape[1])
        fragments = [headers[index] + row.tobytes() for index, row in zip(indices, rows_KW, strict=True)]
        return np.frombuffer(self._driver.decode(fragments), dtype=np.uint8).reshape(self.k, -1)

    def _headers_for(self, width: int) -> list[bytes]:
        assert self._driver is not None
        return [fragment[:_FRAGMENT_HEADER_BYTES] for fragment in self._driver.encode(bytes(self.k * width))]


def _check_indices(indices: Sequence[int], rows_KW: Matrix, k: int, n: int) -> None:
    if len(indices) != k or rows_KW.shape[0] != k:
        raise NotEnoughRows(have=min(len(indices), rows_KW.shape[0]), need=k)
    if len(set(indices)) != k or not all(0 <= index < n for index in indices):
        raise WrongRow(f"rows {list(indices)} are not {k} different rows of 0 to {n - 1}")
