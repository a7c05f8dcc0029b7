"""Which jobs a worker takes part in."""

from pathlib import Path

import pytest

from node.job_setup import JobRefused, check_phases, set_up_job
from storage.tree import FileTree
from tests.abci_app.rules.chain import key
from tests.abci_app.rules.rounds_kit import job_terms
from tests.node.memory_network import LOG, TEXT, MemoryNetwork, network, open_tiny_job

__all__ = ["network"]


@pytest.mark.parametrize(("commit", "reveal", "short"), [(1, 5, "commit_blocks 1"), (2, 4, "reveal_blocks 4")])
def test_phases_that_are_too_short_to_be_sure_are_refused_by_name(commit: int, reveal: int, short: str) -> None:
    check_phases(7, job_terms(commit_blocks=2, reveal_blocks=5))
    with pytest.raises(JobRefused, match=f"job 7 has {short};.*--allow-short-phases"):
        check_phases(7, job_terms(commit_blocks=commit, reveal_blocks=reveal))


async def test_a_job_with_short_phases_is_set_up_only_where_that_is_allowed(
    network: MemoryNetwork, tmp_path: Path
) -> None:
    job_id = await open_tiny_job(network, reveal_blocks=4)
    client = network.client(key("w0"))
    with pytest.raises(JobRefused, match="reveal_blocks"):
        await set_up_job(client, job_id, tmp_path, LOG, allow_short_phases=False)
    with pytest.raises(JobRefused, match="no storage deal"):
        await set_up_job(client, job_id, tmp_path, LOG)
    (tmp_path / FileTree.build(TEXT).root.hex()).write_bytes(TEXT)
    assert (await set_up_job(client, job_id, tmp_path, LOG)).terms.reveal_blocks == 4
