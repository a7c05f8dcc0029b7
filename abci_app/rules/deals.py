"""Storage deals.

    pending --ActivateDeal--> active --end height passed--> expired
       |  \\--DeleteDeal--> deleted <--DeleteDeal--|
       \\--not activated in time--> lapsed

The price per block is a multiple of the number of replicas, so providers' shares never leave a remainder.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import BlockContext, Event
from abci_app.errors import (
    BadDealTerm,
    BadReceipt,
    DealKeyUsed,
    DealNotActive,
    DealNotPending,
    NotDealOwner,
    TooFewProviders,
    UnknownDeal,
)
from abci_app.ledger import counters_of, credit, debit, params_of
from abci_app.params import Params
from abci_app.records import Deal
from abci_app.rules.effect import Effect
from abci_app.state import Branch, ReadableState
from primitives.deals import Tier, receipt_digest
from primitives.encoding import encode
from primitives.hashing import sha256, tagged_hash
from primitives.keys import verify_signature

MIB: Final = 1024 * 1024
MAX_CLOSED_PER_BLOCK: Final = 2_000
"""Deals that one block ends at most, so that many deals with one end cannot stop the chain. A block's work allows fewer
new deals than that, so what is carried over gets less with every block."""


def create_deal(branch: Branch, message: m.CreateDeal, sender: bytes, block: BlockContext) -> Effect:
    """Raises: DealKeyUsed, BadDealTerm, TooFewProviders, InsufficientFunds."""
    terms_hash = sha256(encode(message))
    known = tables.DEAL_KEYS.get(branch, sender, message.key)
    if known is not None:
        if known.terms_hash != terms_hash:
            raise DealKeyUsed(f"the key belongs to deal {known.id}, which has other terms")
        return Effect(created_id=known.id)
    params = params_of(branch)
    _check_terms(message, params)
    counters = counters_of(branch)
    deal_id = counters.next_deal
    providers = _draw_providers(branch, message.replicas, block.last_block_hash, deal_id)
    price = price_per_block(message.size, message.tier, message.replicas, params)
    debit(branch, sender, price * message.duration)
    tables.COUNTERS.put(branch, replace(counters, next_deal=deal_id + 1))
    tables.DEAL_KEYS.put(branch, tables.IdRecord(deal_id, terms_hash), sender, message.key)
    deal = Deal(
        id=deal_id,
        owner=sender,
        key=message.key,
        root=message.root,
        size=message.size,
        tier=message.tier,
        series=message.series,
        replicas=message.replicas,
        duration=message.duration,
        providers=providers,
        status="pending",
        escrow=price * message.duration,
        price_per_block=price,
        created_height=block.height,
        end_height=block.height + params.deal_pending_blocks,
    )
    _put_living(branch, deal)
    return Effect(created_id=deal_id, events=(_event(deal),))


def activate_deal(branch: Branch, message: m.ActivateDeal, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownDeal, DealNotPending, BadReceipt."""
    deal = deal_of(branch, message.deal_id)
    if deal.status != "pending" or block.height > deal.end_height:
        raise DealNotPending(f"deal {deal.id} is {deal.status}; it could be activated until height {deal.end_height}")
    if tuple(operator for operator, _ in message.receipts) != deal.providers:
        raise BadReceipt("there should be one receipt of each provider of the deal")
    digest = receipt_digest(block.chain_id, deal.id, deal.root, deal.size)
    for operator, signature in message.receipts:
        provider = tables.VALIDATORS.get(branch, operator)
        if provider is None or not verify_signature(provider.service_key, digest, signature):
            raise BadReceipt("a receipt's signature does not match the provider's service key")
    _drop_from_index(branch, deal)
    active = replace(deal, status="active", start_height=block.height, end_height=block.height + deal.duration)
    _put_living(branch, active)
    return Effect(events=(_event(active),))


def extend_deal(branch: Branch, message: m.ExtendDeal, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownDeal, DealNotActive, BadDealTerm, InsufficientFunds."""
    deal = deal_of(branch, message.deal_id)
    if deal.status != "active" or block.height > deal.end_height:
        raise DealNotActive(f"deal {deal.id} is {deal.status} until height {deal.end_height}")
    duration = deal.duration + message.blocks
    longest = params_of(branch).max_deal_duration
    if duration > longest:
        raise BadDealTerm(f"the deal would last {duration} blocks; at most {longest} are allowed")
    price = deal.price_per_block * message.blocks
    debit(branch, sender, price)
    _drop_from_index(branch, deal)
    extended = replace(deal, duration=duration, end_height=deal.end_height + message.blocks, escrow=deal.escrow + price)
    _put_living(branch, extended)
    return Effect(events=(_event(extended),))


def delete_deal(branch: Branch, message: m.DeleteDeal, sender: bytes, block: BlockContext) -> Effect:
    """Raises: UnknownDeal, NotDealOwner, DealNotActive."""
    deal = deal_of(branch, message.deal_id)
    if deal.owner != sender:
        raise NotDealOwner("only the owner may delete a deal")
    if deal.status not in ("pending", "active") or block.height > deal.end_height:
        raise DealNotActive(f"deal {deal.id} is over")
    blocks_served = block.height - deal.start_height if deal.status == "active" else 0
    _drop_from_index(branch, deal)
    _pay_providers(branch, deal, blocks_served)
    credit(branch, deal.owner, deal.escrow - deal.price_per_block * blocks_served)
    deleted = replace(deal, status="deleted", escrow=0, closed_height=block.height)
    tables.DEALS.put(branch, deleted, deal.id)
    return Effect(events=(_event(deleted),))


def expire_deals(branch: Branch, block: BlockContext) -> list[Event]:
    """End of block: end the deals whose end height has passed (height > end_height), in the order of (end, id).

    At most `MAX_CLOSED_PER_BLOCK`; the rest comes in the next blocks. Nothing hangs on when: messages about a deal go
    by its end height, and so do its pay and its record.
    """
    events: list[Event] = []
    for deal in list(islice(_due_deals(branch, block), MAX_CLOSED_PER_BLOCK)):
        _drop_from_index(branch, deal)
        if deal.status == "active":
            _pay_providers(branch, deal, deal.duration)
            over = replace(deal, status="expired", escrow=0, closed_height=deal.end_height + 1)
        else:
            credit(branch, deal.owner, deal.escrow)
            over = replace(deal, status="lapsed", escrow=0, closed_height=deal.end_height + 1)
        tables.DEALS.put(branch, over, deal.id)
        events.append(_event(over))
    return events


def deal_of(state: ReadableState, deal_id: int) -> Deal:
    """Raises: UnknownDeal."""
    deal = tables.DEALS.get(state, deal_id)
    if deal is None:
        raise UnknownDeal(f"there is no deal {deal_id}")
    return deal


def is_overdue(deal: Deal, height: int) -> bool:
    """Whether the deal is over at `height` although its record does not say so yet (`MAX_CLOSED_PER_BLOCK`)."""
    return deal.status in ("pending", "active") and height > deal.end_height


def price_per_block(size: int, tier: Tier, replicas: int, params: Params) -> int:
    """Price of one block of a deal, all replicas together, 10^-6 token: begun MiB (at least one) x tier x replicas."""
    per_replica = params.deal_price_hot if tier == "hot" else params.deal_price_temporary
    return max(1, -(-size // MIB)) * per_replica * replicas


# --- steps --------------------------------------------------------------------------------------------------------
def _check_terms(message: m.CreateDeal, params: Params) -> None:
    for name, value, most in (
        ("size", message.size, params.max_file_bytes),
        ("replicas", message.replicas, params.max_deal_replicas),
        ("duration", message.duration, params.max_deal_duration),
    ):
        if value > most:
            raise BadDealTerm(f"{name} is {value}; at most {most} is allowed")


def _draw_providers(state: ReadableState, replicas: int, block_hash: bytes, deal_id: int) -> tuple[bytes, ...]:
    """Draw by stake, without replacement, among the newest service set's members with a registered service; sorted.

    One record holds them all, so the work does not grow with the validators that are not in consensus.
    The i-th draw is SHA-256(seed || i as 4 bytes) modulo the stake still in, walked through operators in order.
    """
    newest = tables.SERVICE_SETS.get(state, counters_of(state).set_version)
    pool = [(member.operator, member.stake) for member in (newest.members if newest else ()) if member.service_key]
    if len(pool) < replicas:
        raise TooFewProviders(got=len(pool), want=replicas)
    seed = tagged_hash("outerstep/deal-draw/1", encode([block_hash, deal_id]))
    chosen: list[bytes] = []
    for i in range(replicas):
        digest = hashlib.sha256(seed + i.to_bytes(4, "big")).digest()
        point = int.from_bytes(digest, "big") % sum(stake for _, stake in pool)
        index = 0
        while point >= pool[index][1]:
            point -= pool[index][1]
            index += 1
        chosen.append(pool.pop(index)[0])
    return tuple(sorted(chosen))


def _pay_providers(branch: Branch, deal: Deal, blocks: int) -> None:
    """Each provider's share of `blocks`; the caller takes it off the escrow."""
    for operator in deal.providers:
        credit(branch, operator, deal.price_per_block // deal.replicas * blocks)


def _due_deals(state: ReadableState, block: BlockContext) -> Iterator[Deal]:
    for key, _ in tables.DEALS_BY_END.iterate(state):
        parts = key[len(tables.DEALS_BY_END.prefix) :]
        if int.from_bytes(parts[:8], "big") >= block.height:
            return
        yield deal_of(state, int.from_bytes(parts[8:], "big"))


def _put_living(branch: Branch, deal: Deal) -> None:
    tables.DEALS.put(branch, deal, deal.id)
    tables.DEALS_BY_END.put(branch, tables.Marker(), deal.end_height, deal.id)


def _drop_from_index(branch: Branch, deal: Deal) -> None:
    tables.DEALS_BY_END.delete(branch, deal.end_height, deal.id)


def _event(deal: Deal) -> Event:
    return Event("deal", {"deal_id": str(deal.id), "status": deal.status})
