"""Whoever deals with itself moves its own money and pays fees for it (FAULTS V28); there is no subsidy to collect."""

from abci_app import messages as m
from abci_app import tables
from primitives.deals import receipt_digest
from primitives.hashing import sha256
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, VALIDATORS, Chain, address, key
from tests.abci_app.rules.rounds_kit import (
    GENESIS_ROOT,
    attest,
    certify,
    commit,
    content_of,
    create_job,
    promise_for,
    publish,
    reveal,
)


def wealth(chain: Chain, name: str) -> int:
    """All that is `name`'s: balance, bonds, escrows."""
    validator = tables.VALIDATORS.get(chain.state, address(name))
    worker = tables.WORKERS.get(chain.state, address(name))
    jobs = [job for _, job in tables.JOBS.iterate(chain.state) if job.owner == address(name)]
    deals = [deal for _, deal in tables.DEALS.iterate(chain.state) if deal.owner == address(name)]
    held = sum(record.escrow for record in (*jobs, *deals))
    return chain.balance(name) + held + (validator.bond if validator else 0) + (worker.bond if worker else 0)


def test_owner_that_works_in_its_own_job_gets_its_own_money_back() -> None:
    chain = Chain()
    before, burned = wealth(chain, "alice"), chain.burned
    create_job(chain, min_workers=1, num_rounds=1)
    chain.ok("alice", m.RegisterWorker(bond=10 * TOKEN), m.JoinJob(job_id=1, genesis_root=GENESIS_ROOT))
    chain.ok("alice", commit(chain, "alice"))
    chain.ok("alice", publish(chain, "alice"), reveal(chain, "alice"))
    chain.ok("alice", attest())
    assert chain.job().status == "done"
    paid_to_validators = sum(wealth(chain, v) - wealth(Chain(), v) for v in VALIDATORS)
    assert wealth(chain, "alice") == before - (chain.burned - burned) - paid_to_validators


def test_owner_that_is_drawn_as_provider_of_its_own_deal_gets_its_own_money_back() -> None:
    chain = Chain()
    before, burned = wealth(chain, "v0"), chain.burned
    order = m.CreateDeal(
        key=sha256(b"deal"), root=sha256(b"file"), size=1, tier="hot", replicas=4, duration=5, series=""
    )
    chain.ok("v0", order)
    deal = tables.DEALS.get(chain.state, 1)
    assert deal is not None
    assert address("v0") in deal.providers
    names = {address(v): v for v in VALIDATORS}
    digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
    signed = tuple((operator, key(f"service:{names[operator]}").sign(digest)) for operator in deal.providers)
    chain.ok("v0", m.ActivateDeal(deal_id=1, receipts=signed))
    chain.skip_to(chain.height + 6)
    share = deal.price_per_block * deal.duration // 4
    assert [wealth(chain, v) - wealth(Chain(), v) for v in VALIDATORS[1:]] == [share] * 3
    assert wealth(chain, "v0") == before - (chain.burned - burned) - 3 * share


def test_validator_that_attests_its_own_blob_gets_at_most_its_own_share_back() -> None:
    chain = Chain()
    before, burned = wealth(chain, "v0"), chain.burned
    chain.ok("v0", certify(promise_for(chain, "v0", content_of("v0", 0), "own", expiry=chain.height + 101)))
    others = sum(wealth(chain, v) - wealth(Chain(), v) for v in VALIDATORS[1:])
    assert others > 0
    assert wealth(chain, "v0") == before - (chain.burned - burned) - others
