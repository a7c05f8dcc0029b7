"""Proofs of single keys: honest ones verify, anything altered does not, absence cannot be forged."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from abci_app.proofs import ENTRY_BYTES, KeyProof, ProofError, check_key_proof, verify_key_proof
from abci_app.store import Store
from tests.abci_app.test_store import CLOSE_KEYS, commit

NEIGHBOURS = dict.fromkeys(CLOSE_KEYS[:3], b"v")
ABSENT = CLOSE_KEYS[3]
"""Belongs into the bucket of the others."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("app"))
    commit(store, 1, {**NEIGHBOURS, b"a": b"1"})
    return store


def proof_of(store: Store, key: bytes) -> tuple[bytes, KeyProof]:
    proof, committed = store.prove(key)
    return committed.app_hash, proof


@pytest.mark.parametrize("key", [b"a", *NEIGHBOURS])
def test_a_present_key_is_proven_with_its_value(store: Store, key: bytes) -> None:
    app_hash, proof = proof_of(store, key)
    assert proof.value == store.committed.get(key)
    check_key_proof(app_hash, KeyProof.from_bytes(proof.to_bytes()))


@pytest.mark.parametrize("key", [ABSENT, b"nothing near", b""])
def test_an_absent_key_is_proven_absent(store: Store, key: bytes) -> None:
    app_hash, proof = proof_of(store, key)
    assert proof.value is None
    check_key_proof(app_hash, proof)


def test_a_proof_is_of_one_state_only(store: Store, tmp_path: Path) -> None:
    _, proof = proof_of(store, b"a")
    with Store(tmp_path) as other:
        assert not verify_key_proof(commit(other, 1, {b"a": b"1"}), proof)


def without(bucket: bytes, key: bytes) -> bytes:
    hashed = hashlib.sha256(key).digest()
    entries = [bucket[i : i + ENTRY_BYTES] for i in range(0, len(bucket), ENTRY_BYTES)]
    return b"".join(entry for entry in entries if not entry.startswith(hashed))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: replace(p, value=None), "says that the key is absent, but its bucket holds it"),
        (lambda p: replace(p, value=None, bucket=without(p.bucket, p.key)), "does not lead to the app hash"),
        (lambda p: replace(p, value=None, bucket=b""), "does not lead to the app hash"),
        (lambda p: replace(p, value=None, bucket=b"", path=()), "not 4 times 15 hashes"),
        (lambda p: replace(p, value=b"other"), "holds another value"),
        (lambda p: replace(p, key=ABSENT), "its bucket does not hold it"),
        (lambda p: replace(p, key=b"a"), "an entry of another bucket"),
        (lambda p: replace(p, bucket=p.bucket[:-1]), "not a multiple of 64"),
        (lambda p: replace(p, bucket=p.bucket[ENTRY_BYTES:] + p.bucket[:ENTRY_BYTES]), "not sorted"),
        (lambda p: replace(p, bucket=p.bucket[:ENTRY_BYTES] + p.bucket), "twice"),
        (lambda p: replace(p, path=p.path[:-1]), "not 4 times 15 hashes"),
        (lambda p: replace(p, path=(*p.path, p.path[0])), "not 4 times 15 hashes"),
        (lambda p: replace(p, path=(p.path[0][:-1], *p.path[1:])), "not 4 times 15 hashes of 32 bytes"),
        (lambda p: replace(p, path=(p.path[1], p.path[0], *p.path[2:])), "does not lead to the app hash"),
    ],
)
def test_an_altered_proof_is_refused_with_the_reason(store: Store, change: object, reason: str) -> None:
    app_hash, proof = proof_of(store, CLOSE_KEYS[0])
    altered = change(proof)  # type: ignore[operator]
    assert altered != proof
    with pytest.raises(ProofError, match=reason):
        check_key_proof(app_hash, altered)
    assert not verify_key_proof(app_hash, altered)


def test_presence_of_an_absent_key_cannot_be_forged(store: Store) -> None:
    app_hash, proof = proof_of(store, ABSENT)
    entry = hashlib.sha256(ABSENT).digest() + hashlib.sha256(b"v").digest()
    entries = [proof.bucket[i : i + ENTRY_BYTES] for i in range(0, len(proof.bucket), ENTRY_BYTES)]
    forged = replace(proof, value=b"v", bucket=b"".join(sorted([*entries, entry])))
    with pytest.raises(ProofError, match="does not lead to the app hash"):
        check_key_proof(app_hash, forged)


@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(store: Store, data: st.DataObject) -> None:
    app_hash, proof = proof_of(store, data.draw(st.sampled_from([b"a", ABSENT, *NEIGHBOURS])))
    encoded = bytearray(proof.to_bytes())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        altered = KeyProof.from_bytes(bytes(encoded))
    except ProofError:
        return
    same_claim = (altered.key, altered.value) == (proof.key, proof.value)
    assert not verify_key_proof(app_hash, altered) or not same_claim
    if altered.key == proof.key:
        assert not verify_key_proof(app_hash, altered)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_proof_are_refused(data: bytes) -> None:
    with pytest.raises(ProofError, match="not a proof"):
        KeyProof.from_bytes(data)
