"""The store: what is committed survives, what is not leaves no trace, and the root depends on content alone."""

import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import plyvel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from abci_app.proofs import ENTRY_BYTES, TREE_DEPTH, verify_key_proof
from abci_app.state import Branch, MemoryState
from abci_app.store import StateCorrupted, Store, StoreError, state_root


def reference_root(items: dict[bytes, bytes]) -> bytes:
    """The app hash by its definition, sharing no code with the store: every bucket, every node."""
    buckets: list[list[bytes]] = [[] for _ in range(1 << 16)]
    for key, value in items.items():
        hashed = hashlib.sha256(key).digest()
        buckets[hashed[0] * 256 + hashed[1]].append(hashed + hashlib.sha256(value).digest())
    tag = hashlib.sha256(b"outerstep/state-bucket/1").digest()
    level = [hashlib.sha256(tag + tag + b"".join(sorted(bucket))).digest() for bucket in buckets]
    tag = hashlib.sha256(b"outerstep/state-node/1").digest()
    while len(level) > 1:
        level = [hashlib.sha256(tag + tag + b"".join(level[i : i + 16])).digest() for i in range(0, len(level), 16)]
    return level[0]


def same_bucket_keys(count: int) -> list[bytes]:
    """Keys that fall into one bucket."""
    found: dict[bytes, list[bytes]] = {}
    number = 0
    while True:
        key = b"key%d" % number
        keys = found.setdefault(hashlib.sha256(key).digest()[:2], [])
        keys.append(key)
        if len(keys) == count:
            return keys
        number += 1


CLOSE_KEYS = same_bucket_keys(4)
KEYS = st.sampled_from([*CLOSE_KEYS, *(b"account/%d" % i for i in range(12))])
WRITES = st.dictionaries(KEYS, st.none() | st.binary(min_size=1, max_size=8), max_size=8)


def commit(store: Store, height: int, writes: dict[bytes, bytes | None]) -> bytes:
    prepared = store.prepare(height, writes)
    store.commit(prepared)
    return prepared.app_hash


class StoreMachine(RuleBasedStateMachine):
    """Blocks, dropped candidates and restarts against a plain dict."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir=self.root))
        self.store = Store(self.path)
        self.model: dict[bytes, bytes] = {}
        self.height = 0

    @rule(writes=WRITES)
    def commit_block(self, writes: dict[bytes, bytes | None]) -> None:
        self.height += 1
        commit(self.store, self.height, writes)
        for key, value in writes.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(writes=WRITES)
    def prepare_and_drop(self, writes: dict[bytes, bytes | None]) -> None:
        self.store.prepare(self.height + 1, writes)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store(self.path)
        self.store.check_integrity()

    @rule(key=KEYS)
    def prove(self, key: bytes) -> None:
        proof, committed = self.store.prove(key)
        assert proof.value == self.model.get(key)
        if self.height:
            assert verify_key_proof(committed.app_hash, proof)

    @invariant()
    def holds_what_was_committed(self) -> None:
        assert self.store.committed.height == self.height
        assert dict(self.store.committed.iterate(b"")) == self.model
        if self.height:
            assert self.store.committed.app_hash == state_root(MemoryState(self.model))

    def teardown(self) -> None:
        self.store.close()


def test_any_history_of_blocks_and_restarts(tmp_path: Path) -> None:
    StoreMachine.root = tmp_path
    case = StoreMachine.TestCase()
    case.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
    case.runTest()


@settings(max_examples=4, deadline=None)
@given(st.dictionaries(st.binary(max_size=6), st.binary(max_size=6), max_size=40))
def test_the_root_is_what_its_definition_says(items: dict[bytes, bytes]) -> None:
    assert state_root(MemoryState(items)) == reference_root(items)


def test_the_root_of_known_states() -> None:
    assert state_root(MemoryState()).hex() == reference_root({}).hex()
    items = dict.fromkeys(CLOSE_KEYS, b"v")
    assert state_root(MemoryState(items)) == reference_root(items)


def test_the_root_does_not_depend_on_how_the_state_came_about(tmp_path: Path) -> None:
    with Store(tmp_path / "one") as one, Store(tmp_path / "two") as two:
        first = commit(one, 1, {b"a": b"1", b"b": b"2", **dict.fromkeys(CLOSE_KEYS, b"v")})
        commit(two, 1, dict.fromkeys(reversed(CLOSE_KEYS), b"other"))
        commit(two, 2, {b"c": b"gone", b"b": b"2"})
        second = commit(two, 3, {b"c": None, b"a": b"1", **dict.fromkeys(CLOSE_KEYS, b"v")})
        assert first == second


def test_preparing_a_block_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        app_hash = commit(store, 1, {b"a": b"1"})
        store.prepare(2, {b"a": None, b"b": b"2"})
        assert store.committed.get(b"a") == b"1"
        assert store.prepare(2, {}).app_hash == app_hash
    with Store(tmp_path) as store:
        assert (store.committed.height, store.committed.app_hash) == (1, app_hash)


def test_readers_keep_the_state_they_began_with(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"a/1": b"old", b"a/2": b"old"})
        reader = store.committed
        items = reader.iterate(b"a/")
        assert next(items) == (b"a/1", b"old")
        commit(store, 2, {b"a/1": b"new", b"a/2": b"new"})
        assert list(items) == [(b"a/2", b"old")]
        assert reader.get(b"a/1") == b"old"
        assert store.committed.get(b"a/1") == b"new"


def test_iteration_is_in_key_order_from_the_start_and_stays_within_the_prefix(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, dict.fromkeys((b"a", b"b/", b"b/1", b"b/2", b"b0", b"\xff\xff"), b"v"))
        state = store.committed
        assert [key for key, _ in state.iterate(b"b/")] == [b"b/", b"b/1", b"b/2"]
        assert [key for key, _ in state.iterate(b"b/", start=b"b/1")] == [b"b/1", b"b/2"]
        assert [key for key, _ in state.iterate(b"b/", start=b"a")] == [b"b/", b"b/1", b"b/2"]
        assert [key for key, _ in state.iterate(b"\xff")] == [b"\xff\xff"]
        assert len(list(state.iterate(b""))) == 6
        branch = Branch(state)
        branch.delete(b"b/1")
        branch.set(b"b/3", b"v")
        assert [key for key, _ in branch.iterate(b"b/", start=b"b/1")] == [b"b/2", b"b/3"]


def test_a_block_costs_the_same_in_a_large_state(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"filler/%d" % i: b"v" for i in range(20_000)})
        prepared = store.prepare(2, {b"a": b"1", b"b": b"2"})
        assert len(prepared.buckets) == 2
        assert sum(map(len, prepared.nodes)) <= 2 * (TREE_DEPTH + 1)
        assert sum(len(bucket) for bucket in prepared.buckets.values()) <= 2 * 12 * ENTRY_BYTES


def test_heights_only_go_up(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 5, {b"a": b"1"})
        with pytest.raises(StoreError, match="height 5 after height 5"):
            store.commit(store.prepare(5, {}))


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    program = f"from pathlib import Path; from abci_app.store import Store; Store(Path({str(tmp_path)!r}))"
    with Store(tmp_path):
        second = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
        )
        assert "is in use by another process" in second.stderr
        with pytest.raises(StoreError, match="in use by another process"):
            Store(tmp_path)


def test_a_path_that_cannot_hold_data_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open the database"):
        Store(tmp_path / "file" / "app")


def edit(path: Path, key: bytes, value: bytes) -> None:
    database = plyvel.DB(str(path))
    assert database.get(key) is not None
    database.put(key, value)
    database.close()


def test_a_damaged_bucket_is_found_at_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"a": b"1"})
    bucket = hashlib.sha256(b"a").digest()[:2]
    edit(tmp_path, b"b" + bucket, b"\x00" * ENTRY_BYTES)
    with pytest.raises(StateCorrupted, match="replays it from the blocks"):
        Store(tmp_path)


def test_a_damaged_value_is_found_by_the_integrity_check(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"a": b"1", b"b": b"2"})
        assert store.check_integrity() == 2
    edit(tmp_path, b"sa", b"9")
    with Store(tmp_path) as store, pytest.raises(StateCorrupted, match="does not match the values"):
        store.check_integrity()


@pytest.mark.parametrize(
    ("meta", "reason"),
    [(b"garbage", "is damaged"), (b"\x93\x63\x01\xc4\x00", "layout 99; this version reads layout 2")],
)
def test_an_unreadable_record_of_height_is_refused(tmp_path: Path, meta: bytes, reason: str) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"a": b"1"})
    edit(tmp_path, b"m", meta)
    with pytest.raises(StoreError, match=reason):
        Store(tmp_path)


def test_state_without_a_height_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        commit(store, 1, {b"a": b"1"})
    database = plyvel.DB(str(tmp_path))
    database.delete(b"m")
    database.close()
    with pytest.raises(StateCorrupted, match="height 0"):
        Store(tmp_path)


def test_many_new_keys_in_one_large_bucket_take_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying the bucket for each key took minutes for what one block can hold."""
    monkeypatch.setattr("abci_app.store.bucket_index", lambda key_hash: 7)
    size = 20_000
    with Store(tmp_path) as store:
        started = time.perf_counter()
        prepared = store.prepare(1, {b"%d" % i: b"value" for i in range(size)})
        assert time.perf_counter() - started < 5
    packed = prepared.buckets[7]
    entries = [packed[i : i + ENTRY_BYTES] for i in range(0, len(packed), ENTRY_BYTES)]
    assert entries == sorted(
        hashlib.sha256(b"%d" % i).digest() + hashlib.sha256(b"value").digest() for i in range(size)
    )
