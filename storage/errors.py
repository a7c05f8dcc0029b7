"""Errors of the storage package.

StorageError
|- UnwritableStore           the directory cannot hold a store (at start)
|- OverBudget                the disk budget, or the disk itself, is full
|- WrongBytes                bytes that do not prove against the root
|- FileGone                  the last deal of the file went while it was being written
|- SourceUnavailable         the chain cannot be asked right now
|- UnusableFile              a local file that cannot be stored, changed meanwhile, or is not the one of the deal
|- RequestRefused            what the service answers with an HTTP status other than 200
|  |- BadRequest 400, NotProvider 403, Unknown 404, TooSlow 408, Incomplete 409, Over 410, LengthNeeded 411,
|  `- TooLarge 413, WrongSegment 422, Busy 503, NoSpace 507
|- ProviderError             one provider failed one request (client side)
|- UploadFailed              at least one provider has no valid receipt; carries the receipts of the others
`- DownloadFailed            no provider delivered; says what each did
"""

from collections.abc import Mapping, Sequence


class StorageError(Exception):
    """Anything that this package refuses or cannot do, said for people."""


class UnwritableStore(StorageError):
    """The store's directory cannot be used: not writable, locked by another process, or of another format."""


class OverBudget(StorageError):
    """There is no room for these bytes."""


class WrongBytes(StorageError):
    """The bytes do not belong at this place of the file."""


class FileGone(StorageError):
    """No deal names the file any more."""


class SourceUnavailable(StorageError):
    """To be raised by a DealSource that cannot answer: nothing is dropped then, and requests get 503."""


class UnusableFile(StorageError):
    """A local file that is missing, not a regular file, changed under our hands, or not the file of the deal."""


class RequestRefused(StorageError):
    """An answer other than 200. `code` is stable and for programs, the message is for people."""

    status = 400
    code = "bad_request"
    retry_after_s: int | None = None

    def __init__(self, message: str, *, gone_height: int | None = None) -> None:
        super().__init__(message)
        self.gone_height = gone_height


class BadRequest(RequestRefused):
    """Not of the documented form."""


class NotProvider(RequestRefused):
    """The deal does not name this operator."""

    status, code = 403, "not_provider"


class Unknown(RequestRefused):
    """No such deal, file or segment here."""

    status, code = 404, "unknown"


class TooSlow(RequestRefused):
    """The body did not arrive in time."""

    status, code = 408, "too_slow"


class Incomplete(RequestRefused):
    """No receipt: bytes are missing."""

    status, code = 409, "incomplete"


class Over(RequestRefused):
    """The deal, or the last deal of the file, has ended; `gone_height` is the first height without it."""

    status, code = 410, "gone"


class LengthNeeded(RequestRefused):
    """A body without a declared length."""

    status, code = 411, "length_needed"


class TooLarge(RequestRefused):
    """A body above the cap; not read."""

    status, code = 413, "too_large"


class WrongSegment(RequestRefused):
    """The bytes do not prove against the deal's root at this index."""

    status, code = 422, "wrong_bytes"


class Busy(RequestRefused):
    """As many transfers as we take are running, or the chain cannot be asked; try again soon."""

    status, code = 503, "busy"
    retry_after_s = 1


class NoSpace(RequestRefused):
    """The disk budget is used up."""

    status, code = 507, "no_space"


class ProviderError(StorageError):
    """One provider failed one request.

    `may_retry`: the same request may work a little later. `retry_after_s`: when, if the provider said so.
    """

    def __init__(
        self, url: str, reason: str, *, code: str = "", may_retry: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason
        self.code = code
        self.may_retry = may_retry
        self.retry_after_s = retry_after_s


class UploadFailed(StorageError):
    """Some providers hold the file and signed (`receipts`), others failed (`failures`: operator -> reason)."""

    def __init__(self, receipts: Sequence[tuple[bytes, bytes]], failures: Mapping[bytes, str]) -> None:
        lines = "; ".join(failures.values())
        super().__init__(f"{len(failures)} of {len(receipts) + len(failures)} providers failed: {lines}")
        self.receipts = list(receipts)
        self.failures = dict(failures)


class DownloadFailed(StorageError):
    """The file, or a part of it, could not be fetched; the message says what each provider did."""
