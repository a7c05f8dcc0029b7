"""What travels under /da/v1, as canonical msgpack arrays (primitives.encoding). Errors are JSON {error, detail}."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from da_layer.coding import EncodedBlob, Row
from primitives.blobs import MAX_ROWS, BlobPromise
from primitives.encoding import encode
from primitives.merkle import MerkleProof

PREFIX: Final = "/da/v1/blobs"
CONTENT_TYPE: Final = "application/msgpack"
PROOF_BYTES: Final = 1024
"""More than the index, the path (8 hashes for 255 rows) and the framing of one row take."""
ENVELOPE_BYTES: Final = 4096
"""More than a promise, its key and its signature take."""

_PIECE_BYTES: Final = 256 * 1024


class ProvenRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    index: int
    data: bytes
    proof: MerkleProof


ProvenRows = Annotated[tuple[ProvenRow, ...], msgspec.Meta(max_length=MAX_ROWS)]
"""As many as a blob may have: bodies are decoded before they are checked, and empty rows take 18 times their bytes."""


class SignedPromise(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    promise: BlobPromise
    public_key: bytes
    """Of the publisher's account, 32 bytes x-only."""
    signature: bytes
    """Over `promise.digest`."""


class PutRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Body of PUT: the fields of SignedPromise, then all rows assigned to the receiving member."""

    promise: BlobPromise
    public_key: bytes
    signature: bytes
    rows: ProvenRows

    @property
    def signed_promise(self) -> SignedPromise:
        return SignedPromise(self.promise, self.public_key, self.signature)


class BlobStatus(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Answer to GET of a blob: the promise it is held for, and which rows are there."""

    promise: BlobPromise
    indices: tuple[int, ...]


class ErrorAnswer(msgspec.Struct, frozen=True):
    """JSON body of every answer that is not 200."""

    error: str
    """One word for programs, such as `unknown`."""
    detail: str
    """A sentence for people."""
    height: int = 0
    """With `pruned`: the height at which the rows were deleted."""


def put_body(signed: SignedPromise, blob: EncodedBlob, indices: Sequence[int]) -> list[Row]:
    """The canonical bytes of a PutRequest in pieces; rows are views, nothing is copied."""
    pieces: list[Row] = [b"\x94" + encode(signed.promise) + encode(signed.public_key) + encode(signed.signature)]
    pieces.append(_array_prefix(len(indices)))
    for index in indices:
        row = blob.rows[index]
        pieces += [b"\x93" + encode(index) + _binary_prefix(len(row)), row, encode(blob.prove(index))]
    return pieces


def in_small_pieces(pieces: Sequence[Row]) -> Iterator[Row]:
    """The same bytes, at most 256 KiB at a time, so that a socket never buffers a whole row."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), _PIECE_BYTES):
            yield view[start : start + _PIECE_BYTES]


def _array_prefix(length: int) -> bytes:
    """What msgpack writes before an array of `length` items."""
    return bytes([0x90 | length]) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


def _binary_prefix(length: int) -> bytes:
    """What msgpack writes before a byte string of `length` bytes."""
    if length < 1 << 8:
        return b"\xc4" + length.to_bytes(1, "big")
    if length < 1 << 16:
        return b"\xc5" + length.to_bytes(2, "big")
    return b"\xc6" + length.to_bytes(4, "big")
