"""What can go wrong in the DA layer.

DaError
+-- InvalidBlob        parameters or a promise out of their form; nothing was encoded
+-- NotEnoughRows      fewer rows than a decoding needs
+-- WrongRow           a row of the wrong size, or an index that the blob does not have
+-- InvalidEncoding    the committed rows are not the code of any blob: every reader finds so, for any k rows
+-- StoreFull          the disk budget does not hold these rows
+-- StoreUnavailable   the disk could not be read or written
+-- ChainUnavailable   raised by implementations of DaChain when they cannot reach the chain
+-- NotAttested        fewer than two thirds of the stake attested; names who refused and why
+-- RetrievalFailed
    +-- BlobUnknown      no node knows the blob
    +-- BlobPruned       the blob's time is over; its rows are gone for good
    +-- BlobUnavailable  too few rows could be had just now; may work later
"""

from collections.abc import Mapping


class DaError(Exception):
    """Base of all errors that the DA layer raises on purpose."""


class InvalidBlob(DaError, ValueError):
    """A parameter or field is out of its form; the text names it."""


class NotEnoughRows(DaError):
    def __init__(self, *, have: int, need: int) -> None:
        super().__init__(f"{have} rows; {need} are needed")
        self.have = have
        self.need = need


class WrongRow(DaError, ValueError):
    """A row's index or size does not fit the blob."""


class InvalidEncoding(DaError):
    """The rows that the header commits to are not the code of one blob in canonical form."""


class StoreFull(DaError):
    def __init__(self, *, need: int, used: int, budget: int) -> None:
        super().__init__(f"{need} bytes of rows do not fit: {used} of {budget} bytes are used")
        self.need = need
        self.used = used
        self.budget = budget


class StoreUnavailable(DaError):
    """The operating system refused to read or write the rows."""


class ChainUnavailable(DaError):
    """The node cannot ask its chain just now."""


class NotAttested(DaError):
    """Dispersal ended without attestations of two thirds of the stake. `refusals`: member -> what it answered."""

    def __init__(self, *, stake: int, total: int, refusals: Mapping[str, str]) -> None:
        told = "; ".join(f"{member}: {reason}" for member, reason in refusals.items())
        super().__init__(f"attested by {stake} of {total} stake; two thirds are needed ({told})")
        self.stake = stake
        self.total = total
        self.refusals = dict(refusals)


class RetrievalFailed(DaError):
    """A blob could not be read. `answers`: member -> what it answered."""

    def __init__(self, text: str, answers: Mapping[str, str]) -> None:
        told = "; ".join(f"{member}: {answer}" for member, answer in answers.items())
        super().__init__(f"{text} ({told})" if told else text)
        self.answers = dict(answers)


class BlobUnknown(RetrievalFailed):
    """Nodes with more than two thirds of the stake say that they never held the blob."""


class BlobPruned(RetrievalFailed):
    """Nodes with more than a third of the stake, so at least one honest one, say that the blob was pruned."""

    def __init__(self, text: str, answers: Mapping[str, str], *, height: int) -> None:
        super().__init__(text, answers)
        self.height = height
        """Height at which the rows were deleted."""


class BlobUnavailable(RetrievalFailed):
    def __init__(self, text: str, answers: Mapping[str, str], *, have: int, need: int) -> None:
        super().__init__(text, answers)
        self.have = have
        self.need = need
