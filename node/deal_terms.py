"""A deal's record in the form of the storage package: the one place where the two meet."""

from abci_app.records import Deal
from storage.terms import DealTerms


def deal_terms(deal: Deal) -> DealTerms:
    """A deal's record in the form of the storage package."""
    return DealTerms(
        id=deal.id,
        root=deal.root,
        size=deal.size,
        tier=deal.tier,
        end_height=deal.end_height,
        providers=deal.providers,
        owner=deal.owner,
        series=deal.series,
        status=deal.status,
        closed_height=deal.closed_height,
    )
