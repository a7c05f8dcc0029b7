"""Killed at any moment, a store holds whole segments and nothing else."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from storage.store import StorageStore
from storage.tree import FileTree
from tests.storage.support import names_in, some_bytes

SCRIPT = """
import sys
from primitives.deals import SEGMENT_BYTES
from storage.store import StorageStore
from storage.tree import FileTree
from tests.storage.support import some_bytes

store = StorageStore(sys.argv[1])
for deal_id in range(1, 10**6):
    content = some_bytes(2 * SEGMENT_BYTES + deal_id, seed=deal_id % 5)
    tree = FileTree.build(content)
    for index in range(3):
        data = content[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]
        store.put(deal_id, tree.root, tree.size, index, tree.segment(index, data))
        print("stored", flush=True)
    if deal_id > 2:
        store.release(deal_id - 2, deal_id)
"""


@pytest.mark.parametrize("num_steps", [1, 4, 9, 14])
def test_a_killed_store_opens_again_with_whole_segments_only(tmp_path: Path, num_steps: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(num_steps):
        assert process.stdout.readline() == "stored\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()

    store = StorageStore(tmp_path)
    references = store.references()
    assert references, "what was said to be stored is there"
    sizes = {FileTree.build(content).root: len(content) for content in map(_content, range(1, 30))}
    for root in references.values():
        held = store.held(root, sizes[root])
        assert all(store.read(root, index) for index in range(3) if index in held)
    assert store.num_rotten == 0
    assert names_in(tmp_path / "tmp") == []
    for deal_id in references:
        store.release(deal_id, 100)
    assert (store.used_bytes, names_in(tmp_path / "files")) == (0, [])
    store.close()


def _content(deal_id: int) -> bytes:
    return some_bytes(2 * 64 * 4096 + deal_id, seed=deal_id % 5)
