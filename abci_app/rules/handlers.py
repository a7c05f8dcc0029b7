"""Which handler applies which message: one table."""

from collections.abc import Callable
from typing import Any, Final

from abci_app import messages as m
from abci_app.block import BlockContext
from abci_app.rules import accounts, stake
from abci_app.rules.effect import Effect
from abci_app.state import Branch

Handler = Callable[[Branch, Any, bytes, BlockContext], Effect]
"""(branch, message, sender, block) -> effect. Raises InvalidTransaction; the caller then drops the branch."""

HANDLERS: Final[dict[type[m.Message], Handler]] = {
    m.Transfer: accounts.transfer,
    m.RegisterValidator: stake.register_validator,
    m.Bond: stake.bond,
    m.Unbond: stake.unbond,
    m.RegisterService: stake.register_service,
}
