"""The application of a proposer that wastes its blocks: ``python -m tests.abci_app.wasteful_application``, for tests.

Into each block that it proposes it puts transactions that decode, so that nobody can refuse the block for them, and
that are good for nothing: repeated ones, wrong nonces in the wrong order, broken signatures, another chain's. What it
makes of decided blocks is the real application's doing.
"""

import sys

from abci_app import __main__ as process
from abci_app.application import Application
from abci_app.server import abci_pb2 as pb
from tests.abci_app.kit import ALICE, BOB, OPERATOR, transfer

NUM_WASTE = 7


def waste(height: int) -> list[bytes]:
    """NUM_WASTE transactions, other ones at each height."""
    ahead = height + 1_000
    broken = transfer(0, sender=BOB, amount=height)
    return [
        *(transfer(ahead + 1, sender=ALICE), transfer(ahead, sender=ALICE)),
        *(transfer(ahead, sender=BOB), transfer(ahead, sender=BOB)),
        broken[:-1] + bytes([broken[-1] ^ 1]),
        transfer(0, sender=BOB, amount=height, chain_id="other"),
        transfer(0, sender=OPERATOR, amount=height),
    ]


class WastefulApplication(Application):
    def prepare_proposal(self, request: pb.RequestPrepareProposal) -> pb.ResponsePrepareProposal:
        honest = super().prepare_proposal(request).txs
        return pb.ResponsePrepareProposal(txs=[*waste(request.height), *honest, *reversed(honest)])


if __name__ == "__main__":
    process.Application = WastefulApplication  # type: ignore[misc]
    sys.exit(process.main())
