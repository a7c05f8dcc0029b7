"""What the application must know of CometBFT's genesis at any later start: kept in the state, so it is part of the app
hash and CometBFT need not tell it again."""

from typing import Final

import msgspec

from abci_app.tables import Table


class Chain(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One record, written at InitChain."""

    chain_id: str
    max_block_bytes: int
    """Largest block that consensus allows, bytes."""


CHAIN: Final = Table("chain", Chain)
"""Key: ``chain/``."""
