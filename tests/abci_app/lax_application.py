"""The application of a Byzantine validator: ``python -m tests.abci_app.lax_application``, for tests only.

It lets everything into its mempool, accepts every proposal, and adds garbage to each block that it proposes. What it
makes of decided blocks is the real application's doing.
"""

import random
import sys

from abci_app import __main__ as process
from abci_app.application import Application
from abci_app.execution import Unverified
from abci_app.server import abci_pb2 as pb
from tests.abci_app.kit import BOB, transfer

FIRST_HEIGHT = 2
LAST_HEIGHT = 6
"""Blocks within these heights get the garbage."""
NUM_GARBAGE = 9


def garbage(height: int) -> list[bytes]:
    """Transactions that no honest proposer would take; the same for each height, and other ones at the next."""
    chance = random.Random(height)
    good = transfer(0, sender=BOB)
    twice = chance.randbytes(40)
    return [
        b"\x00",
        chance.randbytes(300),
        chance.randbytes(300_000),
        b"\xff" * 100,
        b"\x91" * 5_000,
        good[:-1] + bytes([good[-1] ^ 1]),
        good + b"\x00",
        *(twice, twice),
    ]


class LaxApplication(Application):
    def begin_check(self, request: pb.RequestCheckTx) -> pb.ResponseCheckTx | Unverified:
        return pb.ResponseCheckTx()

    def prepare_proposal(self, request: pb.RequestPrepareProposal) -> pb.ResponsePrepareProposal:
        added = garbage(request.height) if FIRST_HEIGHT <= request.height <= LAST_HEIGHT else []
        return pb.ResponsePrepareProposal(txs=[*added[:5], *request.txs, *added[5:]])

    def process_proposal(self, request: pb.RequestProcessProposal) -> pb.ResponseProcessProposal:
        return pb.ResponseProcessProposal(status=pb.ResponseProcessProposal.ACCEPT)


if __name__ == "__main__":
    process.Application = LaxApplication  # type: ignore[misc]
    sys.exit(process.main())
