"""Why a transaction is refused: one class and one result code per reason.

    InvalidTransaction
    +-- form (1..19): wrong whatever the state; refused at CheckTx, charged nothing
    +-- account (20..39): nonce, fee, funds
    +-- stake and services (40..59)
    +-- jobs and rounds (60..89)
    +-- data availability (90..109)
    +-- storage deals (110..129)

Anything else that a handler raises is a bug and stops the node, which is kinder than a fork.
"""

from typing import ClassVar

CODE_OK = 0


class InvalidTransaction(Exception):
    """A transaction that the rules refuse. `code` is part of the consensus result; the text is not."""

    code: ClassVar[int] = 1


# --- form ---------------------------------------------------------------------------------------------------------
class MalformedTransaction(InvalidTransaction):
    """Not the canonical encoding of a transaction."""

    code = 2


class TransactionTooLarge(InvalidTransaction):
    code = 3

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(f"transaction has {size} bytes; at most {limit} are allowed")


class WrongChain(InvalidTransaction):
    code = 4

    def __init__(self, *, got: str, want: str) -> None:
        super().__init__(f"signed for chain {got!r}; this chain is {want!r}")


class BadSignature(InvalidTransaction):
    code = 5

    def __init__(self) -> None:
        super().__init__("the signature does not match the body and the public key")


class MalformedMessage(InvalidTransaction):
    """A field is out of its documented form."""

    code = 6


class TooMuchWork(InvalidTransaction):
    code = 7

    def __init__(self, *, work: int, limit: int) -> None:
        super().__init__(f"the messages need {work} units of work; a block holds {limit}")


class FeeTooLow(InvalidTransaction):
    code = 8

    def __init__(self, *, got: int, want: int) -> None:
        super().__init__(f"fee is {got}; the messages need at least {want}")


# --- account ------------------------------------------------------------------------------------------------------
class WrongNonce(InvalidTransaction):
    code = 20

    def __init__(self, *, got: int, want: int) -> None:
        super().__init__(f"nonce is {got}; the next nonce of this account is {want}")


class Expired(InvalidTransaction):
    code = 21

    def __init__(self, *, valid_until: int, height: int) -> None:
        super().__init__(f"valid until height {valid_until}; this is height {height}")


class InsufficientFunds(InvalidTransaction):
    code = 22

    def __init__(self, *, need: int, have: int) -> None:
        super().__init__(f"needs {need} x 10^-6 token; the account has {have}")


# --- stake and services -------------------------------------------------------------------------------------------
class UnknownValidator(InvalidTransaction):
    code = 40


class ValidatorExists(InvalidTransaction):
    code = 41


class BadPossessionProof(InvalidTransaction):
    code = 42


class BondTooSmall(InvalidTransaction):
    code = 43

    def __init__(self, *, got: int, want: int) -> None:
        super().__init__(f"the bond would be {got}; at least {want} is needed")


class LastValidator(InvalidTransaction):
    code = 44


class StakeLocked(InvalidTransaction):
    code = 45


class ValidatorJailed(InvalidTransaction):
    code = 46


class ServiceKeyTaken(InvalidTransaction):
    code = 47


class ConsensusKeyTaken(InvalidTransaction):
    """The consensus key is, or was, another validator's: keys are never used twice."""

    code = 48


class TooManyUnbondings(InvalidTransaction):
    code = 49

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"{limit} unbondings of this validator wait already; the next may follow when one is paid out")


class UnknownWorker(InvalidTransaction):
    code = 50


class WorkerExists(InvalidTransaction):
    code = 51


# --- jobs and rounds ----------------------------------------------------------------------------------------------
class UnknownJob(InvalidTransaction):
    code = 60


class JobNotOpen(InvalidTransaction):
    code = 61


class NotJobOwner(InvalidTransaction):
    code = 62


class AlreadyMember(InvalidTransaction):
    code = 63


class NotMember(InvalidTransaction):
    code = 64


class JobFull(InvalidTransaction):
    code = 65


class WrongGenesisRoot(InvalidTransaction):
    code = 66


class WrongRound(InvalidTransaction):
    code = 67

    def __init__(self, *, got: int, want: int) -> None:
        open_now = f"the open round is {want}" if want >= 0 else "no round is open"
        super().__init__(f"round {got} is not open; {open_now}")


class WrongPhase(InvalidTransaction):
    code = 68

    def __init__(self, *, got: str, want: str) -> None:
        super().__init__(f"the round is in phase {got}; this message belongs to {want}")


class NotExpected(InvalidTransaction):
    """The sender does not take part in this round."""

    code = 69


class AlreadyCommitted(InvalidTransaction):
    code = 70


class NotCommitted(InvalidTransaction):
    code = 71


class CommitmentMismatch(InvalidTransaction):
    """The revealed values are not those that were committed."""

    code = 72


class AlreadyRevealed(InvalidTransaction):
    code = 73


class AlreadyAttested(InvalidTransaction):
    code = 75


class NotScorer(InvalidTransaction):
    code = 76


class AlreadyScored(InvalidTransaction):
    code = 77


class WrongBase(InvalidTransaction):
    code = 78


class JobKeyUsed(InvalidTransaction):
    """The idempotency key belongs to a job with other terms."""

    code = 79


class PhaseOver(InvalidTransaction):
    code = 80

    def __init__(self, *, height: int, deadline: int) -> None:
        super().__init__(f"this is height {height}; the phase took messages until height {deadline}")


class BadScores(InvalidTransaction):
    """Not one score for each revealed worker."""

    code = 81


class BadRejection(InvalidTransaction):
    """A rejected worker is not in the round's frozen set."""

    code = 82


class TooManySamples(InvalidTransaction):
    code = 83

    def __init__(self, *, got: int, limit: int) -> None:
        super().__init__(f"{got} samples; the job allows {limit} in one round")


class RoundTooLong(InvalidTransaction):
    """A blob made when the round opened could not be certified any more when it is revealed."""

    code = 84

    def __init__(self, *, got: int, limit: int) -> None:
        super().__init__(
            f"train_blocks + commit_blocks + reveal_blocks is {got}; at most {limit} (unbonding_blocks) are allowed"
        )


# --- data availability --------------------------------------------------------------------------------------------
class UnknownBlob(InvalidTransaction):
    code = 90


class BlobExists(InvalidTransaction):
    code = 91


class UnknownServiceSet(InvalidTransaction):
    code = 92


class BadBlobHeader(InvalidTransaction):
    code = 93


class BadBlobExpiry(InvalidTransaction):
    code = 94


class BadAttestation(InvalidTransaction):
    code = 95


class BelowThreshold(InvalidTransaction):
    code = 96

    def __init__(self, *, stake: int, total: int) -> None:
        super().__init__(f"attested by {stake} of {total} stake; two thirds are needed")


class NotPublisher(InvalidTransaction):
    code = 97


# --- storage deals ------------------------------------------------------------------------------------------------
class UnknownDeal(InvalidTransaction):
    code = 110


class NotDealOwner(InvalidTransaction):
    code = 111


class DealKeyUsed(InvalidTransaction):
    """The idempotency key belongs to a deal with other terms."""

    code = 112


class TooFewProviders(InvalidTransaction):
    code = 113

    def __init__(self, *, got: int, want: int) -> None:
        super().__init__(f"{want} replicas were asked for; {got} providers are registered")


class DealNotPending(InvalidTransaction):
    code = 114


class DealNotActive(InvalidTransaction):
    code = 115


class BadReceipt(InvalidTransaction):
    code = 116


class BadDealTerm(InvalidTransaction):
    code = 117
