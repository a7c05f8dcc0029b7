"""Merkle trees: RFC 6962 shape, and proofs that hold for what is there and for nothing else."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.merkle import EMPTY_ROOT, MerkleProof, MerkleTree, inner_hash, leaf_hash, merkle_root, verify_proof


def rfc6962_root(leaves: list[bytes]) -> bytes:
    """The recursive definition of RFC 6962, section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + rfc6962_root(leaves[:split]) + rfc6962_root(leaves[split:])).digest()


@given(st.lists(st.binary(max_size=8), max_size=70))
def test_root_is_the_one_of_rfc_6962(leaves: list[bytes]) -> None:
    assert MerkleTree.of(leaves).root == rfc6962_root(leaves)


def test_tree_without_leaves_has_a_root_and_no_proof() -> None:
    tree = MerkleTree([])
    assert tree.root == EMPTY_ROOT
    with pytest.raises(IndexError):
        tree.prove(0)


@given(st.integers(1, 70))
def test_every_leaf_proves_at_its_own_index_only(total: int) -> None:
    leaves = [index.to_bytes(2, "big") for index in range(total)]
    tree = MerkleTree.of(leaves)
    for index, leaf in enumerate(leaves):
        proof = tree.prove(index)
        assert verify_proof(tree.root, leaf_hash(leaf), proof)
        for other in range(total):
            if other != index:
                moved = MerkleProof(index=other, total=total, path=proof.path)
                assert not verify_proof(tree.root, leaf_hash(leaf), moved)


@given(st.integers(1, 40), st.data())
def test_altered_proofs_fail(total: int, data: st.DataObject) -> None:
    tree = MerkleTree.of([bytes([index]) for index in range(total)])
    index = data.draw(st.integers(0, total - 1))
    proof = tree.prove(index)
    leaf = leaf_hash(bytes([index]))
    wrong_hash = b"\x55" * 32
    altered = [
        MerkleProof(index=index, total=total, path=(*proof.path, wrong_hash)),
        MerkleProof(index=-1, total=total, path=proof.path),
        MerkleProof(index=index, total=0, path=proof.path),
        MerkleProof(index=total, total=total, path=proof.path),
    ]
    if proof.path:
        altered.append(MerkleProof(index=index, total=total, path=proof.path[:-1]))
        altered.append(MerkleProof(index=index, total=total, path=(wrong_hash, *proof.path[1:])))
        altered.append(MerkleProof(index=index, total=total, path=(proof.path[0][:31], *proof.path[1:])))
    assert not any(verify_proof(tree.root, leaf, bad) for bad in altered)
    assert not verify_proof(tree.root, leaf_hash(b"other"), proof)


def test_inner_node_does_not_pass_for_a_leaf() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    root = merkle_root([left, right])
    assert root == inner_hash(left, right)
    assert leaf_hash(left + right) != root
