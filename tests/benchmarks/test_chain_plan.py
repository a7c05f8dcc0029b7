"""Which loads make bench-chain runs, and that their transactions are what they should be."""

import itertools
from pathlib import Path

import pytest

from abci_app.errors import BadSignature
from abci_app.parsed import parse_transaction, verify_transaction
from benchmarks.chain.flood import spoil
from benchmarks.chain.kvstore import kvstore_offer
from benchmarks.chain.networks import ACCOUNTS, FLOODERS, with_application
from benchmarks.chain.options import PARTS, Options, parse_options
from benchmarks.chain.payments import PAYMENT_BYTES, sign_payments
from benchmarks.chain.plan import make_plan
from node.config import NodeConfig
from node.engine_files import engine_config


def engine_lines() -> list[str]:
    """Of the engine's configuration as a node writes it."""
    return engine_config(Path("home"), NodeConfig()).splitlines()


@pytest.fixture(scope="module")
def payments() -> list[bytes]:
    return sign_payments(ACCOUNTS[:2], 6, 1)


def test_the_two_applications_take_turns_and_the_next_round_goes_the_other_way() -> None:
    plan = make_plan(Options(parts=("throughput",), rounds=3, validators=(4,)))
    assert [load.application for load in plan] == [
        "kvstore",
        "outerstep",
        "outerstep",
        "kvstore",
        "kvstore",
        "outerstep",
    ]
    assert [load.round_index for load in plan] == [0, 0, 1, 1, 2, 2]


def test_quiet_and_flooded_runs_take_turns_in_the_same_way() -> None:
    plan = make_plan(Options(parts=("flood",), rounds=2))
    assert [load.flood_tps > 0 for load in plan] == [False, True, True, False]
    assert {load.pace.rate for load in plan} == {None}


def test_both_applications_get_the_same_pace_on_networks_of_the_same_size() -> None:
    plan = make_plan(Options(parts=("throughput",)))
    for nodes in (1, 4):
        loads = [load for load in plan if load.nodes == nodes]
        assert len(loads) == 6
        assert len({load.pace for load in loads}) == 1


def test_a_validator_that_is_a_block_behind_still_has_room_in_its_mempool() -> None:
    mempool = int(next(line for line in engine_lines() if line.startswith("size = ")).partition("=")[2])
    for load in make_plan(Options()):
        lag = load.pace.in_flight if load.nodes > 1 else 0
        assert load.pace.in_flight + lag < mempool


def test_only_the_chosen_parts_are_planned() -> None:
    by_part = {part: make_plan(Options(parts=(part,))) for part in PARTS}
    assert [len(by_part[part]) for part in ("throughput", "latency", "envelopes", "flood")] == [12, 3, 6, 6]
    assert by_part["commits"] == [], "needs no network"
    assert make_plan(Options()) == list(itertools.chain.from_iterable(by_part.values()))


def test_the_default_plan_prepares_enough_for_its_whole_time() -> None:
    for load in make_plan(Options()):
        assert load.num_txs >= (load.pace.rate or 0) * (load.pace.seconds + load.pace.warm_up_s)
        assert load.num_flood_txs <= len(FLOODERS) * 64, "an account may not have more nonces waiting"


def test_a_quick_look_has_one_round_and_smaller_states_unless_told_otherwise() -> None:
    quick = parse_options(["--quick"])
    assert (quick.rounds, quick.accounts) == (1, (10_000, 100_000))
    assert parse_options(["--quick", "--rounds", "2"]).rounds == 2
    assert parse_options([]) == Options()


def test_parts_keep_their_order_however_they_are_named() -> None:
    assert parse_options(["--only", "commits", "throughput"]).parts == ("throughput", "commits")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "--rounds is 0; it should be 1 to 20"),
        (["--seconds", "0.5"], "--seconds is 0.5; it should be 1 to 120"),
        (["--only", "speed"], "invalid choice: 'speed'"),
    ],
)
def test_options_out_of_range_are_refused_with_the_range(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_options(arguments)
    assert refused.value.code == 2
    assert words in capsys.readouterr().err


def test_payments_have_two_hundred_bytes_and_those_for_the_kvstore_as_many(payments: list[bytes]) -> None:
    offer = kvstore_offer(100, tx_bytes=PAYMENT_BYTES, lanes=4)
    assert {len(tx) for tx in payments} == {len(tx) for lane in offer.lanes for tx in lane} == {200}


def test_transactions_for_the_kvstore_each_have_a_key_of_their_own() -> None:
    offer = kvstore_offer(100, tx_bytes=PAYMENT_BYTES, lanes=4)
    assert len({tx.partition(b"=")[0] for lane in offer.lanes for tx in lane}) == offer.num_txs == 100


def test_spoilt_transactions_are_those_they_were_but_for_the_signature(payments: list[bytes]) -> None:
    for tx, spoilt in zip(payments, spoil(payments), strict=True):
        verify_transaction(tx)
        with pytest.raises(BadSignature):
            verify_transaction(spoilt)
        before, after = parse_transaction(tx), parse_transaction(spoilt)
        assert (before.body, before.sender, len(tx)) == (after.body, after.sender, len(spoilt))


def test_another_application_changes_one_line_of_the_engines_configuration() -> None:
    before = engine_lines()
    after = with_application("\n".join(before), "kvstore").splitlines()
    assert [new for old, new in zip(before, after, strict=True) if old != new] == ['proxy_app = "kvstore"']


def test_a_configuration_that_names_its_application_otherwise_is_not_changed_by_guess() -> None:
    with pytest.raises(AssertionError, match="another way"):
        with_application('proxy_app = "tcp://127.0.0.1:26658"\n', "kvstore")
