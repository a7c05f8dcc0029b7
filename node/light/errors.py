"""Why a light client does not believe a header.

ProofError (node.errors)
+-- LightError          base of these
    +-- InvalidBlock    a light block that contradicts itself, its signatures or the one before it
    +-- NotEnoughTrust  signed by too few of those that are trusted: a block in between is needed first
    +-- TrustExpired    the newest trusted header is too old to build on
    +-- StaleAnswer     verified, but too old to be the newest state
    +-- BlockMissing    the node does not have the block, or not yet
    +-- Divergence      two nodes have different blocks of one height
    +-- TrustError      what trust should start from cannot be used: genesis, trusted hash, stored headers
"""

from node.errors import ProofError


class LightError(ProofError):
    """Base of all of them."""


class InvalidBlock(LightError):
    """The light block of a height cannot be right; the text says what does not fit."""

    def __init__(self, height: int, problem: str) -> None:
        super().__init__(f"block {height} is refused: {problem}")
        self.height = height


class NotEnoughTrust(LightError):
    """Of the trusted validators' power, `signed` of `total` signed block `height`; it takes more than a third."""

    def __init__(self, height: int, signed: int, total: int) -> None:
        super().__init__(f"block {height} is signed by {signed} of the {total} power that is trusted, not by a third")
        self.height = height


class TrustExpired(LightError):
    """Validators of the trusted header may have taken their stake out and have nothing more to lose."""

    def __init__(self, height: int, reason: str) -> None:
        super().__init__(
            f"the newest trusted header (height {height}) is too old: {reason}. Ask someone you trust for the height "
            "and hash of a recent block and give them with --trust-height and --trust-hash (docs/light_client.md)"
        )


class StaleAnswer(LightError):
    """The newest state of the node is of a block too long ago."""

    def __init__(self, url: str, height: int, age_s: float, limit_s: float) -> None:
        super().__init__(
            f"the newest state that {url} gives is verified but old: block {height} was made {age_s:.0f} s ago, more "
            f"than {limit_s:g} s. The node is behind or holds newer blocks back: ask another one, or give --max-age"
        )


class BlockMissing(LightError):
    """`text` is the node's own, made fit to be printed."""

    def __init__(self, url: str, height: int, text: str) -> None:
        printable = "".join(letter for letter in text[:200] if letter.isprintable())
        super().__init__(f"{url} gives no block {height}: {printable}")


class Divergence(LightError):
    """Two nodes show different blocks of one height: one of them lies, or the chain was attacked."""

    def __init__(self, height: int, first: tuple[str, bytes], second: tuple[str, bytes], note: str) -> None:
        super().__init__(
            f"ATTACK: nodes disagree about block {height}: {first[0]} has {first[1].hex()}, {second[0]} has "
            f"{second[1].hex()}, {note}. Trust neither; compare with other nodes and tell the operators"
        )


class TrustError(LightError):
    """Trust cannot start from what was given; the text says what to give."""
