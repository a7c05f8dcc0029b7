"""What goes into a proposal, and which proposals are refused."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abci_app.application import Application
from abci_app.proposals import size_in_block
from abci_app.rules.handlers import HANDLERS
from abci_app.server import abci_pb2 as pb
from abci_app.spending import SPENDING
from abci_app.store import Store
from tests.abci_app.kit import ALICE, BOB, MAX_BLOCK_BYTES, OPERATOR, RICH, genesis, init_chain, run_block, transfer

MAX_WORK = 1000
GARBAGE = b"\xc1not a transaction"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    application = Application(Store(tmp_path_factory.mktemp("app")))
    application.init_chain(init_chain(genesis(max_block_work=MAX_WORK)))
    run_block(application, 1)
    return application


def prepare(application: Application, txs: list[bytes], max_tx_bytes: int = MAX_BLOCK_BYTES) -> list[bytes]:
    request = pb.RequestPrepareProposal(max_tx_bytes=max_tx_bytes, txs=txs, height=2)
    return list(application.prepare_proposal(request).txs)


def accepts(application: Application, txs: list[bytes]) -> bool:
    status = application.process_proposal(pb.RequestProcessProposal(txs=txs, height=2)).status
    assert status in (pb.ResponseProcessProposal.ACCEPT, pb.ResponseProcessProposal.REJECT)
    return status == pb.ResponseProcessProposal.ACCEPT


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384])
def test_the_size_in_a_block_counts_tag_and_length(size: int) -> None:
    tx = b"x" * size
    assert size_in_block(tx) == len(pb.RequestFinalizeBlock(txs=[tx]).SerializeToString())


def test_the_byte_limit_is_used_to_the_last_byte_and_not_one_more(application: Application) -> None:
    txs = [transfer(0), transfer(1), transfer(2)]
    room = sum(size_in_block(tx) for tx in txs)
    assert prepare(application, txs, room) == txs
    assert prepare(application, txs, room - 1) == txs[:2]
    assert prepare(application, txs, 0) == []


def test_a_transaction_that_does_not_fit_makes_room_for_the_next_sender(application: Application) -> None:
    large, small = transfer(0, num_messages=3), transfer(0, sender=BOB)
    assert prepare(application, [large, small], size_in_block(small)) == [small]


def test_what_cannot_pass_stays_out_and_the_order_stays(application: Application) -> None:
    late = transfer(1, valid_until_height=1)
    stranger = transfer(0, sender=OPERATOR)
    other_chain = transfer(0, sender=BOB, chain_id="other")
    txs = [GARBAGE, transfer(1), transfer(0), late, stranger, other_chain, transfer(0, sender=BOB), transfer(2), b""]
    assert prepare(application, txs) == [txs[2], txs[6]]
    with_gap_closed = [transfer(0), transfer(1), transfer(2)]
    assert prepare(application, with_gap_closed) == with_gap_closed


def test_the_work_limit_is_used_to_the_last_unit(application: Application) -> None:
    txs = [transfer(nonce) for nonce in range(6)]
    assert prepare(application, txs) == txs[:5]
    assert accepts(application, txs[:5])
    assert not accepts(application, txs)


@settings(max_examples=40, deadline=None)
@given(
    picks=st.lists(
        st.tuples(st.sampled_from([ALICE, BOB, OPERATOR]), st.integers(0, 3), st.integers(1, 4)), max_size=10
    ),
    garbage=st.lists(st.binary(max_size=40), max_size=3),
    max_tx_bytes=st.integers(0, 2000),
)
def test_what_is_prepared_is_accepted(
    application: Application, picks: list[tuple], garbage: list[bytes], max_tx_bytes: int
) -> None:
    txs = [*garbage, *(transfer(nonce, sender=sender, num_messages=size) for sender, nonce, size in picks)]
    prepared = prepare(application, txs, max_tx_bytes)
    assert sum(size_in_block(tx) for tx in prepared) <= max_tx_bytes
    assert accepts(application, prepared)


def test_who_empties_the_account_first_gets_no_unpaid_transactions_into_the_block(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        application = Application(store)
        application.init_chain(init_chain())
        run_block(application, 1)
        drain = transfer(0, amount=RICH - 200)
        after = [transfer(nonce, num_messages=10) for nonce in range(1, 9)]
        others = transfer(0, sender=BOB)
        prepared = prepare(application, [drain, *after, others])
        assert prepared == [drain, others]
        results = run_block(application, 2, prepared).tx_results
        assert [result.gas_used for result in results] == [result.gas_wanted for result in results]


@settings(max_examples=30, deadline=None)
@given(amounts=st.lists(st.sampled_from([1, RICH // 3, RICH - 400, RICH - 200, RICH]), max_size=6))
def test_whatever_is_prepared_pays_its_fee(amounts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        application = Application(store)
        application.init_chain(init_chain())
        run_block(application, 1)
        txs = [transfer(nonce, amount=amount) for nonce, amount in enumerate(amounts)]
        prepared = prepare(application, txs)
        assert prepared == txs[: len(prepared)]
        assert all(result.gas_used for result in run_block(application, 2, prepared).tx_results)


def test_every_message_says_what_it_may_spend() -> None:
    assert set(SPENDING) == set(HANDLERS)


def test_an_honest_block_is_accepted_whatever_the_own_mempool_has_seen(application: Application) -> None:
    block = prepare(application, [transfer(0), transfer(1)])
    for tx in (transfer(0), transfer(1), transfer(0, amount=9)):
        application.check_tx(pb.RequestCheckTx(tx=tx))
    assert accepts(application, block)
    assert accepts(application, block)


def test_a_transaction_that_decodes_and_fails_does_not_cost_the_block(application: Application) -> None:
    assert accepts(application, [transfer(7), transfer(7), transfer(0, chain_id="other")])


def test_blocks_that_no_honest_proposer_makes_are_refused(application: Application) -> None:
    assert accepts(application, [])
    assert not accepts(application, [transfer(0), GARBAGE])
    assert not accepts(application, [b""])
    assert not accepts(application, [b"x" * MAX_BLOCK_BYTES])


def test_the_block_limit_of_genesis_survives_a_restart(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        application = Application(store)
        application.init_chain(init_chain())
        run_block(application, 1)
        assert not accepts(Application(store), [b"x" * MAX_BLOCK_BYTES])
