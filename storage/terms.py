"""What the chain says about deals, as this package sees it. The node fills these in from the chain's own records."""

from typing import Literal, Protocol

import msgspec

from primitives.deals import Tier

DealStatus = Literal["pending", "active", "expired", "deleted", "lapsed"]


class DealTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One deal. `root` 32 bytes, `providers` and `owner` account addresses of 20 bytes, `size` in bytes."""

    id: int
    root: bytes
    size: int
    tier: Tier
    end_height: int
    """Last height at which the file is served; for a pending deal the last height for activation."""
    providers: tuple[bytes, ...]
    owner: bytes
    series: str
    status: DealStatus
    closed_height: int = 0
    """Height at which it expired, lapsed or was deleted; 0 while it lives."""

    def lives_at(self, height: int) -> bool:
        """Whether its file is held and served while `height` is the chain's height."""
        return self.status in ("pending", "active") and height <= self.end_height

    def gone_height(self, height: int) -> int:
        """The first height without the deal, for one that does not live at `height`."""
        if self.closed_height:
            return self.closed_height
        return self.end_height + 1 if self.end_height < height else height


class DealSource(Protocol):
    """Where a storage service learns about deals: its own node's chain.

    Both queries raise SourceUnavailable when the chain cannot be asked, or has answered only in part.
    """

    async def get(self, deal_id: int) -> DealTerms | None:
        """The deal as of the newest block, None when there has never been one of this id."""

    async def for_provider(self, operator: bytes) -> list[DealTerms]:
        """At least every living deal that names `operator`. Asked once per block."""

    def height(self) -> int:
        """The chain's height as far as this node knows."""
