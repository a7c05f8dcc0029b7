"""Requests that are ready to be written: every transaction in one of them, those of an account in their order."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localnet.load.offer import BATCH, Batch, Offer, batch_size, make_batches, spread

URLS = ["http://127.0.0.1:26601", "http://127.0.0.1:26611"]


def sent_by(batch: Batch) -> list[bytes]:
    """The transactions in the request itself."""
    head, _, body = batch.request.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    calls = json.loads(body)
    assert {call["method"] for call in calls} == {"broadcast_tx_async"}
    return [base64.b64decode(call["params"]["tx"]) for call in calls]


@settings(deadline=None)
@given(st.integers(0, 80), st.integers(1, 9), st.integers(1, 5), st.integers(1, BATCH))
def test_every_transaction_is_sent_once_and_those_of_an_account_in_order_on_one_lane(
    num_txs: int, num_accounts: int, num_lanes: int, size: int
) -> None:
    txs = [b"%d of account %d" % (number, number % num_accounts) for number in range(num_txs)]
    batches = make_batches(Offer(kind="test", lanes=spread(txs, num_accounts, num_lanes)), URLS, size)
    sent = [(batch.lane, tx) for batch in batches for tx in sent_by(batch)]
    assert sorted(tx for _, tx in sent) == sorted(txs)
    assert all(len(batch.texts) <= size for batch in batches)
    for account in range(num_accounts):
        own = [(lane, tx) for lane, tx in sent if tx.endswith(b"account %d" % account)]
        assert [tx for _, tx in own] == txs[account::num_accounts]
        assert len({lane for lane, _ in own}) <= 1


def test_a_batch_keeps_its_transactions_as_blocks_will_show_them() -> None:
    (batch,) = make_batches(Offer(kind="test", lanes=([b"one", b"two"],)), URLS)
    assert [base64.b64decode(text) for text in batch.texts] == sent_by(batch) == [b"one", b"two"]


def test_lanes_take_turns_and_are_spread_over_the_nodes() -> None:
    lanes = ([b"a"] * 2 * BATCH, [b"b"] * BATCH, [b"c"] * 2 * BATCH)
    batches = make_batches(Offer(kind="test", lanes=lanes), URLS)
    assert [batch.lane for batch in batches] == [0, 1, 2, 0, 2]
    assert [b"Host: 127.0.0.1:26611\r\n" in batch.request for batch in batches] == [False, True, False, False, False]


@pytest.mark.parametrize(("rate", "size"), [(None, 10), (2500, 10), (1000, 10), (999, 9), (150, 1), (0.5, 1)])
def test_requests_are_small_when_transactions_are_rare(rate: float | None, size: int) -> None:
    assert batch_size(rate) == size


def test_the_mean_size_of_nothing_is_nothing() -> None:
    assert Offer(kind="test", lanes=([], [])).tx_bytes == 0
    assert Offer(kind="test", lanes=([b"1"], [b"333"])).tx_bytes == 2
