"""Branches read like a dictionary with the writes applied, however deep they are stacked."""

from hypothesis import given
from hypothesis import strategies as st

from abci_app.state import Branch, MemoryState

keys = st.builds(
    lambda table, part: table + b"/" + part,
    st.sampled_from([b"a", b"ab", b"b"]),
    st.binary(max_size=2) | st.sampled_from([b"/", b"a/"]),
)
writes = st.lists(st.tuples(keys, st.none() | st.binary(max_size=2)), max_size=8)


def apply(branch: Branch, model: dict[bytes, bytes], changes: list[tuple[bytes, bytes | None]]) -> None:
    for key, value in changes:
        if value is None:
            branch.delete(key)
            model.pop(key, None)
        else:
            branch.set(key, value)
            model[key] = value


@given(
    st.dictionaries(keys, st.binary(max_size=2), max_size=6),
    writes,
    writes,
    st.sampled_from([b"a/", b"a", b"ab/", b"b/", b"", b"a/a"]),
    keys | st.just(b""),
)
def test_stacked_branches_read_like_one_dictionary(
    base: dict[bytes, bytes],
    lower: list[tuple[bytes, bytes | None]],
    upper: list[tuple[bytes, bytes | None]],
    prefix: bytes,
    start: bytes,
) -> None:
    state = MemoryState(base)
    below = Branch(state)
    above = Branch(below)
    model = dict(base)
    apply(below, model, lower)
    apply(above, model, upper)
    wanted = sorted((k, v) for k, v in model.items() if k.startswith(prefix) and k >= start)
    assert list(above.iterate(prefix, start=start)) == wanted
    assert {k: above.get(k) for k in model} == model
    above.merge_into(below)
    assert list(below.iterate(prefix, start=start)) == wanted
    state.apply(below)
    assert state.items == model


def test_dropped_branch_leaves_no_trace() -> None:
    state = MemoryState({b"a/1": b"x"})
    below = Branch(state)
    above = Branch(below)
    above.set(b"a/2", b"y")
    above.delete(b"a/1")
    assert list(below.iterate(b"a/")) == [(b"a/1", b"x")]
    assert below.writes == {}


def test_writes_made_while_iterating_are_not_seen() -> None:
    branch = Branch(MemoryState({b"a/1": b"", b"a/2": b""}))
    seen = []
    for key, _ in branch.iterate(b"a/"):
        seen.append(key)
        branch.delete(key)
        branch.set(key + b"x", b"")
    assert seen == [b"a/1", b"a/2"]
