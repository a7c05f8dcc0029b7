"""What a handler gives back besides its writes."""

from dataclasses import dataclass

from abci_app.block import Event


@dataclass(frozen=True, slots=True)
class Effect:
    """Of one message that was applied."""

    created_id: int = 0
    """Id of the job or deal that the message made (or found by its idempotency key); 0 for other messages."""
    events: tuple[Event, ...] = ()


NOTHING_TO_TELL = Effect()
