"""Files, segments and proofs: every size, every honest proof, no altered one."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.deals import LEAF_BYTES, SEGMENT_BYTES, file_root
from primitives.encoding import EncodingError, decode, encode
from primitives.merkle import EMPTY_ROOT, leaf_hash, merkle_root
from storage.errors import UnusableFile
from storage.tree import MAX_BODY_BYTES, FileTree, Segment, verify_segment
from tests.storage.support import some_bytes

BORDER_SIZES = sorted(
    {0, 1, 31, 32, 33, 63, 64, 126, 127, 255, 256, 1190}
    | {
        multiple * unit + delta
        for unit in (LEAF_BYTES, SEGMENT_BYTES)
        for multiple in (1, 2, 3, 5)
        for delta in (-1, 0, 1)
    }
)


def pieces(content: bytes) -> list[bytes]:
    return [content[start : start + SEGMENT_BYTES] for start in range(0, len(content), SEGMENT_BYTES)]


@pytest.mark.parametrize("size", BORDER_SIZES)
def test_the_tree_over_segments_has_the_root_of_the_tree_over_leaves(size: int) -> None:
    content = some_bytes(size)
    leaves = [leaf_hash(content[start : start + LEAF_BYTES]) for start in range(0, size, LEAF_BYTES)]
    tree = FileTree.build(content)
    assert tree.merkle_root == merkle_root(leaves)
    assert tree.root == file_root(size, merkle_root(leaves))


@pytest.mark.parametrize("size", BORDER_SIZES)
def test_every_honest_segment_proves_at_its_index_and_nowhere_else(size: int) -> None:
    content = some_bytes(size)
    tree = FileTree.build(content)
    for index, data in enumerate(pieces(content)):
        segment = tree.segment(index, data)
        assert len(encode(segment)) <= MAX_BODY_BYTES
        assert decode(encode(segment), Segment) == segment
        for place in range(-1, tree.num_segments + 2):
            assert verify_segment(tree.root, size, place, segment) == (place == index)


def test_a_path_gives_the_same_tree_as_its_bytes(tmp_path: Path) -> None:
    for size in (0, 1, SEGMENT_BYTES, 2 * SEGMENT_BYTES + 5):
        (tmp_path / "file").write_bytes(some_bytes(size))
        assert FileTree.build(tmp_path / "file").root == FileTree.build(some_bytes(size)).root


def test_sizes_that_share_their_bytes_have_different_roots() -> None:
    roots = {FileTree.build(b"\0" * size).root for size in (0, 1, 2, 4095, 4096, 4097, 8192)}
    assert len(roots) == 7
    assert file_root(0, EMPTY_ROOT) in roots


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 40 * LEAF_BYTES) | st.integers(1, 3 * SEGMENT_BYTES), data=st.data())
def test_no_altered_segment_verifies(size: int, data: st.DataObject) -> None:
    content = some_bytes(size, seed=size)
    tree = FileTree.build(content)
    index = data.draw(st.integers(0, tree.num_segments - 1))
    honest = tree.segment(index, pieces(content)[index])
    body = bytearray(honest.data)
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    altered = [
        msgspec.structs.replace(honest, data=bytes(body)),
        msgspec.structs.replace(honest, data=honest.data[:-1]),
        msgspec.structs.replace(honest, data=honest.data + b"\0"),
        msgspec.structs.replace(honest, data=b""),
        msgspec.structs.replace(honest, path=(*honest.path, bytes(32))),
        msgspec.structs.replace(honest, path=tuple(hashed[:-1] for hashed in honest.path) or (b"",)),
        msgspec.structs.replace(honest, merkle_root=bytes(32)),
        msgspec.structs.replace(honest, merkle_root=b""),
    ]
    assert verify_segment(tree.root, size, index, honest)
    assert not any(verify_segment(tree.root, size, index, segment) for segment in altered)
    assert not verify_segment(tree.root, size + 1, index, honest)
    assert not verify_segment(bytes(32), size, index, honest)


def test_a_root_that_claims_fewer_bytes_than_its_leaves_hold_takes_none_of_them() -> None:
    content = some_bytes(SEGMENT_BYTES)
    honest = FileTree.build(content)
    for claimed in (1, LEAF_BYTES, SEGMENT_BYTES - 1):
        cheap_root = file_root(claimed, honest.merkle_root)
        assert not verify_segment(cheap_root, claimed, 0, honest.segment(0, content))


def test_an_inner_node_does_not_pass_for_a_leaf() -> None:
    content = some_bytes(2 * SEGMENT_BYTES)
    tree = FileTree.build(content)
    forged = Segment(merkle_root=tree.merkle_root, path=(), data=b"".join(tree.segment_roots))
    assert not verify_segment(tree.root, len(forged.data), 0, forged)
    assert not verify_segment(tree.root, tree.size, 0, forged)


@given(st.binary(max_size=300))
def test_garbage_is_no_segment(body: bytes) -> None:
    root = file_root(5, bytes(32))
    try:
        segment = decode(body, Segment)
    except EncodingError:
        return
    assert not verify_segment(root, 5, 0, segment)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    tree = FileTree.build(b"before")
    with pytest.raises(UnusableFile, match="changed"):
        tree.segment(0, b"after!")


def test_only_regular_files_are_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing", "nul\0byte"):
        with pytest.raises(UnusableFile):
            FileTree.build(tmp_path / name)
