"""Truth table of how rounds end: who is paid, slashed, dropped, and why a round is void."""

import pytest

from abci_app.records import Verdict
from primitives.amounts import slash_amount
from tests.abci_app.rules.chain import TOKEN, Chain, address
from tests.abci_app.rules.rounds_kit import (
    OTHER_ROOT,
    REWARD,
    ROOT,
    all_ok,
    at_aggregate,
    attest,
    blob_of,
    commit_all,
    pass_deadline,
    reveal_all,
    started,
)

FOUR = ("w0", "w1", "w2", "w3")


def verdicts(chain: Chain, index: int = 0) -> dict[bytes, Verdict]:
    settlement = chain.settlement(index)
    assert settlement is not None
    return {outcome.worker: outcome.verdict for outcome in settlement.outcomes}


def attest_all(chain: Chain, *workers: str) -> None:
    all_ok(chain, *[chain.tx(w, attest()) for w in workers])


def test_round_that_goes_well_pays_everybody_alike() -> None:
    chain = at_aggregate(*FOUR)
    before = {w: chain.balance(w) for w in FOUR}
    fee = 2 * 200
    attest_all(chain, *FOUR)
    settlement = chain.settlement(0)
    assert settlement is not None
    assert settlement.state_root == ROOT
    assert settlement.total_paid == REWARD
    assert settlement.blobs == tuple(sorted((address(w), blob_of(chain, w, 0)) for w in FOUR))
    for w in FOUR:
        assert chain.balance(w) == before[w] - fee + REWARD // 4
        assert chain.member(w).earned == REWARD // 4
    job = chain.job()
    assert (job.state_root, job.settled_round, job.settled_rounds, job.escrow) == (ROOT, 0, 1, 2 * REWARD)
    assert (chain.round(0).status, chain.round(0).closed_height) == ("settled", chain.height)
    assert (job.open_round, chain.round(1).base_round, chain.round(1).base_root) == (1, 0, ROOT)
