"""From a blob to its rows and back. Rows are proven by Merkle paths and decoded only after that (docs/da.md)."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from da_layer.codecs import Codec, codec_for
from da_layer.errors import InvalidBlob, InvalidEncoding, NotEnoughRows, WrongRow
from da_layer.gf256 import Matrix
from primitives.blobs import BLOB_VERSION, MAX_BLOB_BYTES, BlobHeader, check_header, row_size_for
from primitives.merkle import MerkleProof, MerkleTree, leaf_hash, merkle_root, verify_proof

Row = bytes | memoryview

_STRIPE_BYTES: Final = 16 * 1024
"""Columns coded at once: small enough for the processor's cache."""
_LEAF_PREFIX: Final = b"\x00"


@dataclass(frozen=True, slots=True)
class EncodedBlob:
    """A blob as n rows. `rows` are read-only views into one buffer of n x row_size bytes."""

    header: BlobHeader
    rows: tuple[memoryview, ...]
    _tree: MerkleTree = field(repr=False, compare=False)

    @property
    def commitment(self) -> bytes:
        return self.header.commitment

    def prove(self, index: int) -> MerkleProof:
        """The path from row `index` to `header.rows_root`.

        Raises: IndexError when the blob has no such row.
        """
        return self._tree.prove(index)


def encode_blob(data: Row, *, k: int, n: int, codec: str = "isal") -> EncodedBlob:
    """Lay `data` out in k rows (row by row, zeros at the end) and add n - k parity rows.

    Memory: 1 x the blob for `data` and n/k x for the rows.
    Raises: InvalidBlob when a parameter is out of range or the blob is empty or above MAX_BLOB_BYTES.
    """
    code = codec_for(codec, k, n)
    size = len(data)
    if not 1 <= size <= MAX_BLOB_BYTES:
        raise InvalidBlob(f"blob size is {size}; it should be 1 to {MAX_BLOB_BYTES} bytes")
    matrix = np.zeros((n, row_size_for(size, k)), dtype=np.uint8)
    matrix.reshape(-1)[:size] = np.frombuffer(data, dtype=np.uint8)
    for columns in _stripes(matrix.shape[1]):
        matrix[k:, columns] = code.parity(matrix[:k, columns])
    matrix.flags.writeable = False
    rows = tuple(row.data for row in matrix)
    tree = MerkleTree([leaf_hash(row) for row in rows])
    header = BlobHeader(BLOB_VERSION, codec, k, n, size, matrix.shape[1], tree.root)
    return EncodedBlob(header, rows, tree)


def verify_row(header: BlobHeader, index: int, row: Row, proof: MerkleProof) -> bool:
    """Whether `row` is row `index` of the blob. Any malformed input is simply False."""
    return (
        proof.index == index
        and proof.total == header.n
        and len(row) == header.row_size
        and verify_proof(header.rows_root, leaf_hash(row), proof)
    )


def decode_rows(header: BlobHeader, rows: Mapping[int, Row]) -> bytes:
    """The blob, from any k of its rows by number. Rows must have passed `verify_row`; further rows are not looked at.

    Encodes the result again and compares the root, so that every reader accepts a blob or none does, whichever rows
    it used. Memory: 2 x the blob besides `rows`.

    Raises: InvalidBlob (header out of form), NotEnoughRows, WrongRow, InvalidEncoding.
    """
    try:
        check_header(header)
    except ValueError as error:
        raise InvalidBlob(str(error)) from error
    _check_rows(header, rows)
    code = codec_for(header.codec, header.k, header.n)
    data = _decode_matrix(header, code, rows)
    flat = data.reshape(-1)
    if flat[header.size :].any():
        raise InvalidEncoding("the padding after the blob is not zero")
    if _rows_root(code, data) != header.rows_root:
        raise InvalidEncoding("the committed rows are not the code of the blob that they decode to")
    return flat[: header.size].tobytes()


def _check_rows(header: BlobHeader, rows: Mapping[int, Row]) -> None:
    for index, row in rows.items():
        if type(index) is not int or not 0 <= index < header.n:
            raise WrongRow(f"row {index!r} is not one of 0 to {header.n - 1}")
        if len(row) != header.row_size:
            raise WrongRow(f"row {index} has {len(row)} bytes; it should have {header.row_size}")
    if len(rows) < header.k:
        raise NotEnoughRows(have=len(rows), need=header.k)


def _decode_matrix(header: BlobHeader, code: Codec, rows: Mapping[int, Row]) -> Matrix:
    """The data rows, uint8 [k, row_size], from the k rows with the lowest numbers (data rows cost nothing)."""
    indices = sorted(rows)[: header.k]
    arrays = [np.frombuffer(rows[index], dtype=np.uint8) for index in indices]
    data = np.empty((header.k, header.row_size), dtype=np.uint8)
    if indices[-1] < header.k:
        for target, array in zip(data, arrays, strict=True):
            target[:] = array
        return data
    for columns in _stripes(header.row_size):
        data[:, columns] = code.reconstruct(indices, np.stack([array[columns] for array in arrays]))
    return data


def _rows_root(code: Codec, data: Matrix) -> bytes:
    """Root over data and parity rows, without ever holding more parity than one stripe."""
    leaves = [hashlib.sha256(_LEAF_PREFIX) for _ in range(code.n - code.k)]
    for columns in _stripes(data.shape[1]):
        for leaf, part in zip(leaves, code.parity(data[:, columns]), strict=True):
            leaf.update(part)
    return merkle_root([leaf_hash(row.data) for row in data] + [leaf.digest() for leaf in leaves])


def _stripes(width: int) -> Iterator[slice]:
    for start in range(0, width, _STRIPE_BYTES):
        yield slice(start, min(start + _STRIPE_BYTES, width))
