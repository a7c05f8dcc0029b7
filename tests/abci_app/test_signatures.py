"""The memory of verified signatures is bounded and forgets the oldest first."""

from abci_app.signatures import KnownSignatures


def test_the_least_recently_used_are_forgotten() -> None:
    known = KnownSignatures(limit=3)
    for tx_hash in (b"a", b"b", b"c"):
        known.add(tx_hash)
    assert b"a" in known
    known.add(b"d")
    assert [tx_hash in known for tx_hash in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert len(known) == 3


def test_adding_again_keeps_it_fresh() -> None:
    known = KnownSignatures(limit=2)
    for tx_hash in (b"a", b"b", b"a", b"c"):
        known.add(tx_hash)
    assert b"a" in known
    assert b"b" not in known
