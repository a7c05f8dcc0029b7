"""A load of commitments: each is a worker's only one in the open round of one of its jobs, see `localnet.load.jobs`."""

import random
from dataclasses import dataclass

import uvloop

from abci_app.messages import CommitUpdate, Message
from abci_app.work import total_work
from localnet.load.funding import fund, new_accounts
from localnet.load.jobs import Jobs, cost_of_joining, joining, open_jobs
from localnet.load.offer import Offer, spread
from localnet.load.plan import Plan
from localnet.load.signing import Form, sign_all
from localnet.load.steps import step
from localnet.load.target import Target


@dataclass(frozen=True, slots=True)
class Commitments:
    """`messages` commitments in each transaction, to as many jobs."""

    jobs: Jobs
    messages: int

    def __call__(self, turn: int, account: int, chance: random.Random) -> tuple[Message, ...]:
        chosen = self.jobs.of(account)[turn * self.messages : (turn + 1) * self.messages]
        return tuple(CommitUpdate(job_id=job_id, round_index=0, commitment=chance.randbytes(32)) for job_id in chosen)


def tx_work(messages: int) -> int:
    """Of one transaction."""
    return total_work((CommitUpdate(job_id=1, round_index=0, commitment=bytes(32)),) * messages)


def prepare(target: Target, plan: Plan) -> Offer:
    """New accounts that are workers in open rounds, and their commitments.

    Raises: LoadError, NodeError.
    """
    jobs_each = plan.turns * plan.messages
    keys = new_accounts(plan.accounts)
    price = target.params.gas_price_micro
    each = cost_of_joining(jobs_each, target.params) + plan.turns * tx_work(plan.messages) * price
    with step(f"giving {plan.accounts:,} accounts what they will spend") as tell:
        uvloop.run(fund(target, keys, each, tell))
    jobs = uvloop.run(open_jobs(target, keys, jobs_each))
    form = Form(
        chain_id=target.chain_id,
        content=Commitments(jobs, plan.messages),
        gas_price_micro=price,
        first_nonce=len(joining(range(jobs_each), target.params)),
    )
    with step(f"signing {plan.num_txs:,} transactions") as tell:
        txs = sign_all(keys, plan.num_txs, form, on_progress=lambda done: tell(done, plan.num_txs))
    return Offer(kind=plan.kind, lanes=spread(txs, len(keys), plan.connections), messages=plan.messages)
