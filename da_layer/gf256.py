"""Arithmetic over GF(2^8) with the polynomial 0x11d and the generator 2: the field of reedsolo and of ISA-L.

Shapes: M rows of results, K rows of input, W columns (bytes of a row).
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.uint8]

POLYNOMIAL: Final = 0x11D
_LANES: Final = 8
_COLUMNS_AT_ONCE: Final = 4096


def _tables() -> tuple[Matrix, Matrix]:
    """The product of any two elements [256, 256], and the inverse of each [256] (0 for 0)."""
    powers = np.zeros(510, dtype=np.uint8)
    logarithms = np.zeros(256, dtype=np.int64)
    value = 1
    for exponent in range(255):
        powers[exponent] = powers[exponent + 255] = value
        logarithms[value] = exponent
        value <<= 1
        if value & 0x100:
            value ^= POLYNOMIAL
    products = powers[logarithms[:, None] + logarithms[None, :]]
    products[0, :] = products[:, 0] = 0
    inverses = powers[(255 - logarithms) % 255]
    inverses[0] = 0
    return products, inverses


PRODUCTS, INVERSES = _tables()


def invert(matrix_KK: Matrix) -> Matrix:
    """The inverse of a square matrix, by Gauss-Jordan elimination.

    Raises: ValueError when the matrix is singular.
    """
    size = matrix_KK.shape[0]
    work = np.concatenate([matrix_KK, np.eye(size, dtype=np.uint8)], axis=1)
    for column in range(size):
        candidates = np.flatnonzero(work[column:, column])
        if not candidates.size:
            raise ValueError("the matrix is singular over GF(2^8)")
        pivot = column + int(candidates[0])
        work[[column, pivot]] = work[[pivot, column]]
        work[column] = PRODUCTS[INVERSES[work[column, column]], work[column]]
        factors = work[:, column].copy()
        factors[column] = 0
        work ^= PRODUCTS[factors[:, None], work[column][None, :]]
    return np.ascontiguousarray(work[:, size:])


class PackedMatrix:
    """A matrix made ready to multiply many columns: one table look-up gives all M products of one input byte."""

    def __init__(self, matrix_MK: Matrix) -> None:
        self._results, inputs = matrix_MK.shape
        lanes = -(-self._results // _LANES) * _LANES
        padded = np.zeros((lanes, inputs), dtype=np.uint8)
        padded[: self._results] = matrix_MK
        by_input = np.ascontiguousarray(PRODUCTS[padded].transpose(1, 2, 0))  # [K, 256, lanes]
        self._tables = by_input.view(np.uint64)

    def apply(self, rows_KW: Matrix) -> Matrix:
        """The product of the matrix and `rows_KW`, uint8 [M, W]."""
        width = rows_KW.shape[1]
        result = np.empty((self._results, width), dtype=np.uint8)
        for start in range(0, width, _COLUMNS_AT_ONCE):
            columns = slice(start, start + _COLUMNS_AT_ONCE)
            result[:, columns] = self._apply_block(rows_KW[:, columns])
        return result

    def _apply_block(self, rows_KW: Matrix) -> Matrix:
        total = np.zeros((rows_KW.shape[1], self._tables.shape[2]), dtype=np.uint64)
        for table, row in zip(self._tables, rows_KW, strict=True):
            total ^= table.take(row, axis=0)
        return total.view(np.uint8)[:, : self._results].T
