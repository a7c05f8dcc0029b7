"""What is kept of the database in memory is bounded, and never anything but what stands in that state."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app import store as store_module
from abci_app.reading import NOT_KEPT, OVERHEAD_BYTES, ReadCache
from abci_app.store import CommittedState, Store

keys = st.integers(0, 9)
values = st.none() | st.binary(max_size=12)


def found(cache: ReadCache[int]) -> list[tuple[int, bytes | None]]:
    return [(key, value) for key in range(10) if (value := cache.find(key)) is not NOT_KEPT]


def test_what_was_written_stays_known_while_there_is_room() -> None:
    cache = ReadCache[int](20 * (OVERHEAD_BYTES + 1), value_limit_bytes=8)
    for block in range(100):
        cache = cache.after({block % 10: b"%d" % (block % 7)})
    assert found(cache) == [(key, b"%d" % ((90 + key) % 7)) for key in range(10)]


@given(st.lists(st.tuples(keys, values)), st.lists(st.dictionaries(keys, values)), st.integers(0, 400))
def test_it_knows_only_what_is_true_and_keeps_to_its_limit(
    read: list[tuple[int, bytes | None]], blocks: list[dict[int, bytes | None]], limit: int
) -> None:
    state: dict[int, bytes | None] = {}
    cache = ReadCache[int](limit, value_limit_bytes=8)
    for key, value in read:
        if cache.find(key) is NOT_KEPT:
            cache.keep(key, state.setdefault(key, value))
    for writes in ({}, *blocks):
        before, cache = cache, cache.after(writes)
        assert all(value == state.get(key) for key, value in found(before)), "an older state changed"
        state |= writes
        assert all(value == state.get(key) for key, value in found(cache))
        assert sum(OVERHEAD_BYTES + len(value or b"") for _, value in found(cache)) <= 2 * limit
        assert all(len(value or b"") <= 8 for _, value in found(cache))
        for key in (0, 5):
            if cache.find(key) is NOT_KEPT:
                cache.keep(key, state.get(key))


def test_what_was_read_or_written_is_not_read_from_the_database_again(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.commit(store.prepare(1, {b"a": b"1", b"b": b"2"}))
        first = store.committed
        assert (first.get(b"absent"), first.get(b"a")) == (None, b"1")
        store.commit(store.prepare(2, {b"a": b"3", b"b": None}))
        later = store.committed
    # The database is closed: what is answered now comes from memory.
    assert [first.get(key) for key in (b"a", b"b", b"absent")] == [b"1", b"2", None]
    assert [later.get(key) for key in (b"a", b"b", b"absent")] == [b"3", None, None]


def test_a_state_answers_the_same_with_a_cache_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With caches that are full at once, everything comes from LevelDB."""
    blocks = [{b"k%d" % (i * j % 23): b"v%d" % (i + j) if (i + j) % 5 else None for i in range(15)} for j in range(8)]

    def run(name: str) -> list[tuple[bytes, list[bytes | None]]]:
        seen = []
        with Store(tmp_path / name) as store:
            for height, writes in enumerate(blocks, start=1):
                store.commit(store.prepare(height, writes))
                seen.append((store.committed.app_hash, [store.committed.get(b"k%d" % i) for i in range(25)]))
            assert store.check_integrity() == sum(value is not None for value in seen[-1][1])
        return seen

    with_cache = run("with")
    monkeypatch.setattr(store_module, "MIB", 0)
    assert CommittedState(None, 0, b"")._cache.values.after({b"a": b"1"}).find(b"a") is NOT_KEPT
    assert run("without") == with_cache
