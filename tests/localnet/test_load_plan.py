"""What follows from what is asked for, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from abci_app.execution import PENDING_WINDOW
from abci_app.params import Params
from localnet.cli import app
from localnet.load import commitments, transfers
from localnet.load.command import WORK
from localnet.load.errors import LoadError
from localnet.load.jobs import WORKERS, group_sizes
from localnet.load.plan import MOST_IN_FLIGHT, MOST_TPS, Kind, Plan, Wish, make_plan
from localnet.processes import ProcessName
from localnet.state import NetworkState, save_state

PARAMS = Params()


def plan(
    rate: float | None = 2500.0,
    seconds: float = 10.0,
    messages: int = 1,
    connections: int | None = None,
    accounts: int | None = None,
    kind: Kind = "transfers",
    cores: int = 4,
) -> Plan:
    wish = Wish(kind=kind, rate=rate, seconds=seconds, messages=messages, connections=connections, accounts=accounts)
    return make_plan(wish, nodes=4, cores=cores, params=PARAMS, tx_work=WORK[kind](messages))


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.floats(0.1, 20_000)),
    st.floats(1, 30),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 5000)),
)
def test_there_is_enough_for_the_whole_time_and_no_account_has_too_many_on_the_way(
    rate: float | None, seconds: float, messages: int, accounts: int | None
) -> None:
    made = plan(rate, seconds, messages, accounts=accounts)
    assert made.num_txs == made.accounts * made.turns
    assert made.num_txs >= (rate or 0) * (made.pace.warm_up_s + seconds)
    assert made.pace.in_flight <= MOST_IN_FLIGHT
    assert made.pace.in_flight <= made.accounts * PENDING_WINDOW // 2


@pytest.mark.parametrize(("rate", "accounts"), [(5.0, 100), (700.0, 700), (2500.0, 2000), (None, 2000)])
def test_a_higher_rate_takes_more_accounts(rate: float | None, accounts: int) -> None:
    assert plan(rate).accounts == accounts


def test_full_blocks_of_large_transactions_do_not_pile_up() -> None:
    work = transfers.tx_work(100)
    assert plan(None, messages=100).pace.in_flight <= 2 * PARAMS.max_block_work / work < MOST_IN_FLIGHT


@pytest.mark.parametrize(("rate", "connections"), [(2500.0, 4), (None, 4), (0.5, 2), (0.1, 1)])
def test_there_is_a_connection_for_each_node_unless_it_would_be_idle(rate: float | None, connections: int) -> None:
    assert plan(rate).connections == connections
    assert plan(100.0, connections=9).connections == 9


def test_connections_that_would_be_idle_are_refused_with_the_most_that_would_do() -> None:
    with pytest.raises(LoadError, match=r"8 connections are too many .* at most 5"):
        plan(1.0, connections=8)


@pytest.mark.parametrize(
    ("kind", "rate", "seconds", "messages", "reason"),
    [
        ("transfers", 50_000.0, 60, 1, "needs 3,300,000 .* 1,000,000 of transfers"),
        ("transfers", 2500.0, 30, 100, "needs 90,000 .* 40,000 of transfers"),
        ("commitments", 2500.0, 10, 10, "needs 40,000 .* 20,000 of commitments"),
        ("commitments", 1.0, 61, 1, "--seconds is 61; with commitments it can be at most 60"),
    ],
)
def test_more_than_can_be_prepared_is_refused_with_what_to_do(
    kind: Kind, rate: float, seconds: float, messages: int, reason: str
) -> None:
    with pytest.raises(LoadError, match=reason):
        plan(rate, seconds, messages, kind=kind)


@pytest.mark.parametrize("rate", [5.0, None])
def test_one_transaction_for_each_account_can_be_too_much(rate: float | None) -> None:
    with pytest.raises(LoadError, match=r"needs 20,000 .* 2,000 of commitments .* fewer --accounts"):
        plan(rate, messages=100, accounts=20_000, kind="commitments")


def test_as_fast_as_it_goes_prepares_what_it_can_and_less_where_nodes_share_processors() -> None:
    assert plan(None, kind="commitments", messages=10).num_txs == pytest.approx(20_000, abs=512)
    assert plan(None).num_txs == pytest.approx(MOST_TPS * 16, abs=2000)
    assert plan(None, cores=2).num_txs == pytest.approx(MOST_TPS / 2 * 16, abs=2000)


@settings(deadline=None)
@given(st.integers(1, 3000))
def test_workers_are_in_equal_groups_that_a_job_can_hold(num_workers: int) -> None:
    sizes = group_sizes(num_workers)
    assert sum(sizes) == num_workers
    assert set(sizes[:-1]) <= {sizes[0]}
    assert 1 <= sizes[-1] <= sizes[0] <= WORKERS


def test_work_is_that_of_the_messages() -> None:
    assert transfers.tx_work(3) == 100 + 3 * 100
    assert commitments.tx_work(3) == 100 + 3 * 500


# --- the command -----------------------------------------------------------------------------------------------------
def run(*arguments: str | Path) -> Result:
    """One command inside this process."""
    return CliRunner().invoke(app, ["load", *map(str, arguments)])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--rate", "0"),
        ("--rate", "-5"),
        ("--rate", "fast"),
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--messages", "0"),
        ("--messages", "101"),
        ("--seconds", "0"),
        ("--kind", "mixed"),
        ("--connections", "0"),
        ("--accounts", "0"),
    ],
)
def test_a_bad_value_is_refused_before_anything_is_done(tmp_path: Path, option: str, value: str) -> None:
    answer = run("--home", tmp_path, option, value)
    assert answer.exit_code == 2
    assert option in answer.stderr
    assert answer.stdout == ""


def test_a_folder_without_a_network_is_an_error_that_says_how_to_start_one(tmp_path: Path) -> None:
    answer = run("--home", tmp_path, "--json")
    assert answer.exit_code == 1
    assert "start one with `outerstep localnet up`" in answer.stderr
    assert answer.stdout == ""


def test_a_network_that_does_not_run_is_an_error_that_says_how_to_start_it(tmp_path: Path) -> None:
    gone = ProcessName(pid=0, started=0.0)
    state = NetworkState(chain_id="c", base_port=26600, owner=gone, ready=True, faucet="none", nodes=())
    save_state(tmp_path, state)
    answer = run("--home", tmp_path)
    assert answer.exit_code == 1
    assert f"the local network in {tmp_path} is not running; start it with `outerstep localnet up" in answer.stderr
