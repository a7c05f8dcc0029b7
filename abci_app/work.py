"""Work (gas) of each message: one table. One unit is about a microsecond of a node's time, or 10 bytes kept for ever.

A block holds at most `params.max_block_work`; the fee of a transaction is at least its work x `gas_price_micro`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from abci_app import messages as m
from abci_app.params import Params

TX_WORK: Final = 100
"""Of every transaction: decoding and one signature."""
SIGNATURE_WORK: Final = 100
"""Of each further signature that a message carries."""
ENTRY_WORK: Final = 10
"""Of each entry of a list of scores or addresses."""

WORK: Final[dict[type[m.Message], int]] = {
    m.Transfer: 100,
    m.RegisterValidator: 2000,
    m.Bond: 200,
    m.Unbond: 400,
    m.RegisterService: 1000,
    m.RegisterWorker: 500,
    m.RetireWorker: 400,
    m.CreateJob: 2000,
    m.CancelJob: 500,
    m.JoinJob: 500,
    m.LeaveJob: 300,
    m.CommitUpdate: 500,
    m.RevealUpdate: 500,
    m.ScoreUpdates: 300,
    m.AttestState: 300,
    m.PublishBlob: 800,
    m.CreateDeal: 1500,
    m.ActivateDeal: 500,
    m.ExtendDeal: 400,
    m.DeleteDeal: 500,
}
"""Base work by type of message."""

_EXTRA: Final[dict[type[m.Message], Callable[..., int]]] = {
    m.CreateJob: lambda message: len(message.terms.manifest) + ENTRY_WORK * len(message.terms.scorers),
    m.ScoreUpdates: lambda message: ENTRY_WORK * len(message.scores),
    m.AttestState: lambda message: ENTRY_WORK * len(message.rejected),
    m.PublishBlob: lambda message: SIGNATURE_WORK * len(message.certificate.attestations),
    m.ActivateDeal: lambda message: SIGNATURE_WORK * len(message.receipts),
}
"""What grows with the message."""


def work_of(message: m.Message) -> int:
    """Work of one message, without its share of the envelope."""
    kind = type(message)
    extra = _EXTRA.get(kind)
    return WORK[kind] if extra is None else WORK[kind] + extra(message)


def total_work(messages: Sequence[m.Message]) -> int:
    """Work of a transaction with these messages."""
    return TX_WORK + sum(map(work_of, messages))


def minimum_fee(messages: Sequence[m.Message], params: Params) -> int:
    """The smallest fee, 10^-6 token, that a transaction with these messages may offer."""
    return total_work(messages) * params.gas_price_micro
