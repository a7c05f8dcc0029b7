"""What a load sends is signed beforehand as the rules want it."""

import random
from collections import Counter

import pytest

from abci_app.messages import CommitUpdate, JoinJob, RegisterWorker, Transfer
from abci_app.params import Params
from abci_app.transactions import MAX_MESSAGES, check_signature, decode_transaction
from abci_app.work import minimum_fee
from localnet.load import signing
from localnet.load.commitments import Commitments
from localnet.load.jobs import Jobs, cost_of_joining, joining
from localnet.load.signing import Form, Payments, sign_all, transfer_cost
from primitives.keys import PrivateKey

KEYS = [PrivateKey.from_seed(f"signing/{index}") for index in range(3)]
PARAMS = Params(gas_price_micro=7)


def test_accounts_take_turns_with_their_next_nonces_whichever_process_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "CHUNK", 4)
    addresses = [key.address for key in KEYS]
    form = Form(chain_id="here", content=Payments(addresses, 2), gas_price_micro=7, first_nonce=5)
    told: list[int] = []
    txs = sign_all(KEYS, 10, form, on_progress=told.append)
    assert told == [4, 8, 10]
    spent: Counter[bytes] = Counter()
    for number, tx in enumerate(txs):
        envelope, body = decode_transaction(tx)
        check_signature(envelope)
        assert envelope.sender == KEYS[number % 3].address
        assert (body.chain_id, body.nonce) == ("here", 5 + number // 3)
        assert body.fee == minimum_fee(body.messages, PARAMS)
        assert len(body.messages) == 2
        for message in body.messages:
            assert isinstance(message, Transfer)
            assert message.to in addresses
            spent[envelope.sender] += message.amount
        spent[envelope.sender] += body.fee
    assert spent[KEYS[0].address] == 4 * transfer_cost(2, 7)


def test_no_worker_commits_twice_to_the_same_job_nor_to_one_of_another_group() -> None:
    jobs = Jobs(group_size=2, by_group=((11, 12, 13, 14), (21, 22, 23, 24)))
    content = Commitments(jobs, messages=2)
    chance = random.Random(1)
    for account, group in enumerate([0, 0, 1]):
        messages = [message for turn in range(2) for message in content(turn, account, chance)]
        named = [message.job_id for message in messages if isinstance(message, CommitUpdate)]
        assert named == list(jobs.by_group[group])


@pytest.mark.parametrize(("num_jobs", "txs"), [(1, 1), (99, 1), (100, 2), (250, 3)])
def test_a_worker_registers_and_joins_every_job_in_few_transactions(num_jobs: int, txs: int) -> None:
    parts = joining(range(1, num_jobs + 1), PARAMS)
    messages = [message for part in parts for message in part]
    assert len(parts) == txs
    assert all(len(part) <= MAX_MESSAGES for part in parts)
    assert messages[0] == RegisterWorker(bond=PARAMS.min_worker_bond)
    assert [m.job_id for m in messages if isinstance(m, JoinJob)] == list(range(1, num_jobs + 1))
    assert cost_of_joining(num_jobs, PARAMS) == PARAMS.min_worker_bond + 7 * (100 * txs + 500 * (num_jobs + 1))
