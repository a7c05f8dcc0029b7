"""Transfers."""

from abci_app.block import BlockContext
from abci_app.ledger import credit, debit
from abci_app.messages import Transfer
from abci_app.rules.effect import NOTHING_TO_TELL, Effect
from abci_app.state import Branch


def transfer(branch: Branch, message: Transfer, sender: bytes, block: BlockContext) -> Effect:
    """Raises: InsufficientFunds."""
    debit(branch, sender, message.amount)
    credit(branch, message.to, message.amount)
    return NOTHING_TO_TELL
