"""bench-chain.json: every figure follows from the runs, and nothing that went wrong is left out."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.chain.commits import CommitTimes
from benchmarks.chain.report import (
    ChainReport,
    Figures,
    ReportError,
    figures,
    find_problems,
    read_report,
    write_report,
)
from tests.benchmarks.samples import a_run

ASKED_FOR = {
    *("go_tps_1", "signed_tps_1", "ratio_1", "go_tps_4", "signed_tps_4", "ratio_4"),
    *("p50_finality_s_at_2500", "p99_finality_s_at_2500", "max_block_interval_s_at_2500"),
    *("messages_per_s_10", "messages_per_s_100"),
    *("commit_ms_at_1e4", "commit_ms_at_1e5", "commit_ms_at_1e6_accounts"),
    *("cpu_s_per_1000_tx_app", "cpu_s_per_1000_tx_engine"),
}
BESIDES = {
    *("commit_ms_at_1e4_accounts", "commit_ms_at_1e5_accounts"),
    *("honest_ratio_under_flood", "flood_tps", "p99_finality_s_quiet", "p99_finality_s_under_flood"),
    *("rss_growth_mib_quiet", "flood_rss_growth_mib"),
}
ABOUT_THE_RUN = {"problems", "seconds", "rounds", "window_seconds", "machine", "runs", "commits"}


def commit_times(accounts: int, commit_ms: float) -> CommitTimes:
    values: dict[str, Any] = dict.fromkeys(CommitTimes.__struct_fields__, 0) | {
        "accounts": accounts,
        "commit_ms": commit_ms,
    }
    return CommitTimes(**values)


def a_report(found: Figures) -> ChainReport:
    return ChainReport(
        **msgspec.structs.asdict(found),
        problems=("something",),
        seconds=1.5,
        rounds=3,
        window_seconds=8.0,
        machine={"cores": 2, "cpu": "a processor"},
        runs=(a_run(), a_run(round_index=1)),
        commits=(commit_times(10_000, 4.0),),
    )


def test_the_file_has_exactly_the_keys_that_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "build" / "bench-chain.json"
    write_report(a_report(figures([], [])), path)
    assert set(json.loads(path.read_bytes())) == ASKED_FOR | BESIDES | ABOUT_THE_RUN


def test_a_written_report_is_read_again_as_it_was(tmp_path: Path) -> None:
    report = a_report(figures([a_run(committed_tps=10.0)], [commit_times(10_000, 4.0)]))
    write_report(report, tmp_path / "r.json")
    assert read_report(tmp_path / "r.json") == report


@pytest.mark.parametrize("content", [None, b"{}", b"not json"])
def test_a_report_that_is_missing_or_of_another_form_says_what_to_do(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReportError, match="make bench-chain"):
        read_report(path)


def test_what_was_not_measured_is_null() -> None:
    assert set(msgspec.structs.asdict(figures([], [])).values()) == {None}


def test_throughput_is_the_median_of_the_rounds_of_its_application_and_size() -> None:
    tps = [(1, "outerstep", 30.0), (1, "outerstep", 10.0), (1, "outerstep", 20.0), (1, "kvstore", 99.0)]
    tps += [(4, "outerstep", 7.0), (4, "kvstore", 8.0)]
    runs = [a_run(nodes=n, application=name, committed_tps=x, round_index=i) for i, (n, name, x) in enumerate(tps)]
    found = figures([*runs, a_run(part="latency", committed_tps=1e6)], [])
    assert (found.signed_tps_1, found.go_tps_1, found.signed_tps_4, found.go_tps_4) == (20.0, 99.0, 7.0, 8.0)


def test_the_ratio_is_the_median_of_ratios_within_a_round_and_not_the_ratio_of_medians() -> None:
    ours, go = [10.0, 20.0, 90.0], [20.0, 80.0, 100.0]
    runs = [a_run(committed_tps=tps, round_index=i) for i, tps in enumerate(ours)]
    runs += [a_run(committed_tps=tps, round_index=i, application="kvstore") for i, tps in enumerate(go)]
    found = figures(runs, [])
    assert found.ratio_1 == 0.5
    assert found.signed_tps_1 == 20.0
    assert found.go_tps_1 == 80.0


def test_a_round_that_misses_one_side_gives_no_ratio() -> None:
    runs = [a_run(committed_tps=10.0, round_index=0), a_run(committed_tps=20.0, round_index=1)]
    other = a_run(committed_tps=40.0, round_index=1, application="kvstore")
    assert figures([*runs, other], []).ratio_1 == 0.5
    assert figures(runs, []).ratio_1 is None


def test_finality_is_a_median_and_the_longest_block_interval_a_maximum() -> None:
    rounds = [(0.3, 0.5, 1.0), (0.1, 0.9, 3.0), (0.2, 0.7, 2.0)]
    runs = [
        a_run(part="latency", finality_p50_s=p50, finality_p99_s=p99, block_interval_max_s=longest)
        for p50, p99, longest in rounds
    ]
    found = figures(runs, [])
    assert found.p50_finality_s_at_2500 == 0.2
    assert found.p99_finality_s_at_2500 == 0.7
    assert found.max_block_interval_s_at_2500 == 3.0


def test_envelopes_are_told_apart_by_their_messages() -> None:
    runs = [a_run(part="envelopes", messages_per_tx=n, messages_per_s=n * 50.0) for n in (10, 100)]
    found = figures(runs, [])
    assert (found.messages_per_s_10, found.messages_per_s_100) == (500.0, 5000.0)


def test_honest_throughput_under_the_flood_is_compared_with_the_quiet_run_of_its_round() -> None:
    flooded = {"flood_tps": 500.0, "rss_before_mib": 100.0, "rss_after_mib": 109.0, "finality_p99_s": 0.4}
    runs = [
        a_run(part="flood", committed_tps=1000.0, rss_before_mib=100.0, rss_after_mib=104.0, finality_p99_s=0.2),
        a_run(part="flood", committed_tps=900.0, **flooded),
    ]
    found = figures(runs, [])
    assert found.honest_ratio_under_flood == 0.9
    assert (found.rss_growth_mib_quiet, found.flood_rss_growth_mib) == (4.0, 9.0)
    assert (found.p99_finality_s_quiet, found.p99_finality_s_under_flood) == (0.2, 0.4)
    assert found.flood_tps == 500.0


def test_commits_are_named_by_the_size_of_the_state() -> None:
    found = figures([], [commit_times(10_000, 4.0), commit_times(100_000, 5.0), commit_times(1_000_000, 6.0)])
    assert (found.commit_ms_at_1e4, found.commit_ms_at_1e4_accounts) == (4.0, 4.0)
    assert (found.commit_ms_at_1e5, found.commit_ms_at_1e5_accounts) == (5.0, 5.0)
    assert found.commit_ms_at_1e6_accounts == 6.0


def test_processor_time_is_that_of_one_validator_of_ours_at_full_speed() -> None:
    ours = a_run(cpu_s_per_1000_tx_app=0.1, cpu_s_per_1000_tx_engine=0.2)
    others = [a_run(nodes=4, cpu_s_per_1000_tx_app=9.0), a_run(application="kvstore", cpu_s_per_1000_tx_engine=9.0)]
    found = figures([ours, *others], [])
    assert (found.cpu_s_per_1000_tx_app, found.cpu_s_per_1000_tx_engine) == (0.1, 0.2)


def test_a_run_in_which_everything_was_executed_has_no_problem() -> None:
    assert find_problems(a_run(window_s=8.0), 8.0) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"committed": 999, "lost": 1}, "1 were lost"),
        ({"failed": 2, "reasons": {"code 9: no": 2}}, r"2 failed.*code 9: no \(2\)"),
        ({"committed": 997, "refused": 3}, "3 were refused"),
    ],
)
def test_a_transaction_that_was_lost_refused_or_failed_is_a_problem(changes: dict[str, object], words: str) -> None:
    (problem,) = find_problems(a_run(**changes), 8.0)
    assert re.search(words, problem)
    assert "throughput, outerstep, nodes 1, round 1" in problem


def test_running_out_of_transactions_is_a_problem_only_when_half_the_window_is_missing() -> None:
    assert find_problems(a_run(ran_out=True, window_s=4.1), 8.0) == []
    (problem,) = find_problems(a_run(ran_out=True, window_s=3.9), 8.0)
    assert "after 3.9 s" in problem
