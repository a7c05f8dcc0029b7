"""What a message may take off its sender's balance besides the fee: for a proposer, which has executed nothing yet.

Never less than the rules take, so that a sender cannot empty its account in the first of its transactions and fill the
rest of the block with others whose fees nobody pays any more.
"""

from collections.abc import Callable, Sequence
from typing import Final

from abci_app import messages as m
from abci_app.params import Params
from abci_app.rules.blobs import blob_price
from abci_app.rules.deals import price_per_block
from primitives.amounts import MAX_AMOUNT


def most_spent(messages: Sequence[m.Message], params: Params, height: int) -> int:
    """The most that `messages` take in a block at `height`."""
    return sum(SPENDING[type(message)](message, params, height) for message in messages)


def _nothing(message: m.Message, params: Params, height: int) -> int:
    return 0


def _blob(message: m.PublishBlob, params: Params, height: int) -> int:
    promise = message.certificate.promise
    return blob_price(promise.header.size, max(0, promise.expiry_height - height), params)


def _deal(message: m.CreateDeal, params: Params, height: int) -> int:
    return price_per_block(message.size, message.tier, message.replicas, params) * message.duration


SPENDING: Final[dict[type[m.Message], Callable[..., int]]] = {
    m.Transfer: lambda message, params, height: message.amount,
    m.RegisterValidator: lambda message, params, height: message.bond,
    m.Bond: lambda message, params, height: message.amount,
    m.Unbond: _nothing,
    m.RegisterService: _nothing,
    m.RegisterWorker: lambda message, params, height: message.bond,
    m.RetireWorker: _nothing,
    m.CreateJob: lambda message, params, height: message.terms.num_rounds * message.terms.reward_per_round,
    m.CancelJob: _nothing,
    m.JoinJob: _nothing,
    m.LeaveJob: _nothing,
    m.CommitUpdate: _nothing,
    m.RevealUpdate: _nothing,
    m.ScoreUpdates: _nothing,
    m.AttestState: _nothing,
    m.PublishBlob: _blob,
    m.CreateDeal: _deal,
    m.ActivateDeal: _nothing,
    m.ExtendDeal: lambda message, params, height: MAX_AMOUNT,  # its price stands in the deal
    m.DeleteDeal: _nothing,
}
"""One row for each type of message."""
