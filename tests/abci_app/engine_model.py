"""What CometBFT makes of validator updates, in small: which ones stop the engine, and when the others take effect.

After the documentation of ABCI (FinalizeBlock, validator updates) and the behaviour of v0.38: an update that breaks a
rule makes the engine of every node stop for good at that height.
"""

from collections.abc import Iterable, Mapping

MAX_TOTAL_POWER = (2**63 - 1) // 8


class IllegalUpdate(AssertionError):
    """CometBFT would refuse the block's validator updates, and no node could go on."""


class EngineValidators:
    """The validator set as the engine keeps it: power by Ed25519 key."""

    def __init__(self, powers: Mapping[bytes, int]) -> None:
        self.powers = dict(powers)
        """Who signs from the height after the next on."""
        self._next = dict(powers)
        self.signing = dict(powers)
        """Who signs the next block."""

    def apply(self, updates: Iterable[tuple[bytes, int]]) -> None:
        """The updates of one block.

        Raises: IllegalUpdate.
        """
        updates = list(updates)
        keys = [key for key, _ in updates]
        if len(set(keys)) != len(keys):
            raise IllegalUpdate("a validator is updated twice in one block")
        after = dict(self.powers)
        for key, power in updates:
            if len(key) != 32:
                raise IllegalUpdate("not an Ed25519 key")
            if not 0 <= power <= MAX_TOTAL_POWER:
                raise IllegalUpdate(f"power {power} is out of bounds")
            if power == 0 and after.pop(key, None) is None:
                raise IllegalUpdate("a validator that is not in the set is removed")
            if power:
                after[key] = power
        if not after:
            raise IllegalUpdate("nobody would be left")
        if sum(after.values()) > MAX_TOTAL_POWER:
            raise IllegalUpdate("the total power overflows")
        self.signing, self._next, self.powers = self._next, after, after
