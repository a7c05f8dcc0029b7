"""From bytes to a root and back: leaves of 4 KiB, segments of 64 leaves, one Merkle tree (primitives.merkle).

A segment starts at a multiple of 64 leaves and 64 is a power of two, so its leaves form a subtree, and the tree over
the segments' roots is the upper part of the tree over all leaves: the same root. A segment's proof is therefore a
Merkle proof of its subtree root, and a file is hashed with one segment in memory at a time.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from primitives.deals import LEAF_BYTES, SEGMENT_BYTES, file_root, segment_count
from primitives.merkle import MAX_PROOF_HASHES, MerkleProof, MerkleTree, leaf_hash, merkle_root, verify_proof
from storage.errors import UnusableFile

MAX_BODY_BYTES: Final = SEGMENT_BYTES + MAX_PROOF_HASHES * 34 + 64
"""The canonical bytes of a `Segment` are never more."""


class Segment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A segment with all it takes to check it against the file's root: one form for the wire and for the disk."""

    merkle_root: bytes
    """Root over all leaves of the file; with the size it gives the file's root."""
    path: tuple[bytes, ...]
    """Merkle path from the segment's subtree root upwards."""
    data: bytes


def segment_root(data: bytes | memoryview) -> bytes:
    """Root of the subtree over the 4 KiB leaves of one segment (1 to 262,144 bytes)."""
    view = memoryview(data)
    return merkle_root([leaf_hash(view[start : start + LEAF_BYTES]) for start in range(0, len(view), LEAF_BYTES)])


def segment_length(size: int, index: int) -> int:
    """Bytes of segment `index` of a file of `size` bytes: 262,144 for all but the last. The index must exist."""
    return min(SEGMENT_BYTES, size - index * SEGMENT_BYTES)


def verify_segment(root: bytes, size: int, index: int, segment: Segment) -> bool:
    """Whether `segment` is what stands at `index` in the file (root, size). Malformed input is simply False."""
    total = segment_count(size)
    if not 0 <= index < total or len(segment.data) != segment_length(size, index):
        return False
    if file_root(size, segment.merkle_root) != root:
        return False
    proof = MerkleProof(index=index, total=total, path=segment.path)
    return verify_proof(segment.merkle_root, segment_root(segment.data), proof)


class FileTree:
    """The roots of all segments of a file (32 bytes each), its root, and proofs."""

    def __init__(self, size: int, segment_roots: Sequence[bytes]) -> None:
        if len(segment_roots) != segment_count(size):
            raise ValueError(f"{len(segment_roots)} segment roots for {size} bytes; want {segment_count(size)}")
        self.size = size
        self.segment_roots = list(segment_roots)
        self._tree = MerkleTree(self.segment_roots)
        self.merkle_root = self._tree.root
        self.root = file_root(size, self.merkle_root)

    @classmethod
    def build(cls, source: str | os.PathLike[str] | bytes) -> "FileTree":
        """The tree of a file (a path, read once, one segment in memory) or of bytes.

        Raises: UnusableFile when the path is not a readable regular file.
        """
        with SegmentReader(source) as reader:
            size, roots = 0, []
            for data in reader.stream():
                size += len(data)
                roots.append(segment_root(data))
        return cls(size, roots)

    @property
    def num_segments(self) -> int:
        return len(self.segment_roots)

    def segment(self, index: int, data: bytes) -> Segment:
        """Segment `index` with its proof.

        Raises: UnusableFile when `data` is not what the tree was built from (the file changed meanwhile).
        """
        if segment_root(data) != self.segment_roots[index]:
            raise UnusableFile(f"the file changed while it was being read (segment {index})")
        return Segment(merkle_root=self.merkle_root, path=self._tree.prove(index).path, data=data)


class SegmentReader:
    """Reads the segments of a local file or of bytes. Use as a context manager."""

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        self._bytes = source if isinstance(source, bytes) else None
        self._path = None if isinstance(source, bytes) else Path(source)
        self._descriptor = -1

    def __enter__(self) -> "SegmentReader":
        if self._path is not None:
            self._descriptor = _open_regular(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, index: int) -> bytes:
        """Up to 262,144 bytes from the start of segment `index`; fewer only at the end. Safe from several threads."""
        start = index * SEGMENT_BYTES
        if self._bytes is not None:
            return self._bytes[start : start + SEGMENT_BYTES]
        parts: list[bytes] = []
        missing = SEGMENT_BYTES
        try:
            while missing and (part := os.pread(self._descriptor, missing, start + SEGMENT_BYTES - missing)):
                parts.append(part)
                missing -= len(part)
        except OSError as error:
            raise UnusableFile(f"cannot read {self._path}: {error.strerror}") from error
        return b"".join(parts)

    def stream(self) -> Iterator[bytes]:
        """All segments in order."""
        index = 0
        while data := self.read(index):
            yield data
            index += 1


def _open_regular(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise UnusableFile(f"cannot read {path}: {error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnusableFile(f"{path} is not a regular file")
    return descriptor
