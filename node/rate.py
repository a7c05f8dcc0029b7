"""How many calls an address may make: a token bucket for each, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_ADDRESSES: Final = 10_000
"""Addresses remembered; the one that has been silent longest is forgotten first."""


class RateLimiter:
    """`rate_per_s` calls on average and `burst` at once. `clock` gives seconds."""

    def __init__(self, rate_per_s: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = rate_per_s
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Whether one more call is allowed now; it is counted if so."""
        now = self._clock()
        tokens, since = self._buckets.pop(address, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        allowed = tokens >= 1
        self._buckets[address] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return allowed
