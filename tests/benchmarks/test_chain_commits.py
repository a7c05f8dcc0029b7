"""Timing of commits: real blocks on a real store, however small the state."""

import pytest

from benchmarks.chain.commits import measure_commits


@pytest.mark.parametrize("accounts", [300, 4000])
def test_blocks_are_executed_on_a_state_of_the_size_that_was_asked_for(accounts: int) -> None:
    told: list[float] = []
    times = measure_commits(accounts, told.append, warm_up_blocks=1, blocks=2)
    assert (times.accounts, times.blocks, times.txs_per_block) == (accounts, 2, 500)
    assert 0 < times.state_root_ms < times.finalize_ms
    assert 0 < times.write_ms < times.commit_ms <= times.commit_ms_max
    assert times.cold_commit_ms > 0
    assert told == sorted(told)
    assert told[-1] == 1.0
