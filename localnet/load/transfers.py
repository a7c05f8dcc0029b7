"""A load of payments."""

import uvloop

from abci_app.messages import Transfer
from abci_app.work import total_work
from localnet.load.funding import fund, new_accounts
from localnet.load.offer import Offer, spread
from localnet.load.plan import Plan
from localnet.load.signing import Form, Payments, sign_all, transfer_cost
from localnet.load.steps import step
from localnet.load.target import Target


def tx_work(messages: int) -> int:
    """Of one transaction."""
    return total_work((Transfer(to=bytes(20), amount=1),) * messages)


def prepare(target: Target, plan: Plan) -> Offer:
    """New accounts with money, and their payments to each other.

    Raises: LoadError, NodeError.
    """
    keys = new_accounts(plan.accounts)
    each = plan.turns * transfer_cost(plan.messages, target.params.gas_price_micro)
    with step(f"giving {plan.accounts} accounts what they will spend") as tell:
        uvloop.run(fund(target, keys, each, tell))
    form = Form(
        chain_id=target.chain_id,
        content=Payments([key.address for key in keys], plan.messages),
        gas_price_micro=target.params.gas_price_micro,
    )
    with step(f"signing {plan.num_txs:,} transactions") as tell:
        txs = sign_all(keys, plan.num_txs, form, on_progress=lambda done: tell(done, plan.num_txs))
    return Offer(kind=plan.kind, lanes=spread(txs, len(keys), plan.connections), messages=plan.messages)
