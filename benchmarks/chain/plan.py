"""Which loads are run, in order, on which network; each on a fresh one.

What is compared takes turns within each round, and the round after it goes the other way round (ABBA): a machine that
becomes slower or faster in the meantime then favours neither side.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.chain.networks import Application
from benchmarks.chain.options import Options
from localnet.load.drive import Pace

LATENCY_TPS: Final = 2500.0
FLOOD_TPS: Final = 1000.0
"""Invalid ones, beside honest ones as fast as they go."""
WARM_UP_S: Final = 2.0
IN_FLIGHT: Final = {1: 4000, 10: 2000, 100: 400}
"""Messages in an envelope: most envelopes on the way; well below the size of CometBFT's mempool."""
IN_FLIGHT_ON_SEVERAL: Final = 2400
"""With several validators: one that is behind still holds the transactions of the blocks that it lacks in its mempool,
beside those that came since, and drops without a word what is too much. Speed is the same as with 4000."""
MOST_TPS: Final = {1: 14_000.0, 10: 9000.0, 100: 2200.0}
"""Messages in an envelope: so many transactions a second are prepared for loads as fast as it goes."""
MOST_KVSTORE_TPS: Final = 28_000.0
SPARE_S: Final = 3.0
"""A window begins and ends with a block: so much longer it may become."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load on one fresh network."""

    part: str
    application: Application
    nodes: int
    round_index: int
    pace: Pace
    messages: int = 1
    """In each transaction."""
    flood_tps: float = 0.0
    """Invalid transactions a second on connections of their own."""

    @property
    def name(self) -> str:
        beside = " flooded" if self.flood_tps else ""
        many = f" of {self.messages} messages" if self.messages > 1 else ""
        return f"{self.part}{beside}: {self.application}{many}, nodes {self.nodes}, round {self.round_index + 1}"

    @property
    def longest_s(self) -> float:
        return self.pace.warm_up_s + self.pace.seconds + SPARE_S

    @property
    def num_txs(self) -> int:
        """How many transactions should be ready."""
        most_tps = MOST_KVSTORE_TPS if self.application == "kvstore" else MOST_TPS[self.messages]
        if self.nodes > 1:
            most_tps /= 2  # they share the machine
        return int((self.pace.rate or most_tps) * self.longest_s)

    @property
    def num_flood_txs(self) -> int:
        return int(self.flood_tps * self.longest_s)


def make_plan(options: Options) -> list[Load]:
    """All loads of the chosen parts."""
    makers = {"throughput": _throughput, "latency": _latency, "envelopes": _envelopes, "flood": _flood}
    return [load for part, loads in makers.items() if part in options.parts for load in loads(options)]


def _throughput(options: Options) -> Iterator[Load]:
    applications: tuple[Application, ...] = ("kvstore", "outerstep")
    for nodes in options.validators:
        for round_index in range(options.rounds):
            for application in applications if round_index % 2 == 0 else applications[::-1]:
                yield Load(
                    part="throughput",
                    application=application,
                    nodes=nodes,
                    round_index=round_index,
                    pace=_pace(options, rate=None, nodes=nodes),
                )


def _latency(options: Options) -> Iterator[Load]:
    pace = _pace(options, rate=LATENCY_TPS)
    for round_index in range(options.rounds):
        yield Load(part="latency", application="outerstep", nodes=1, round_index=round_index, pace=pace)


def _envelopes(options: Options) -> Iterator[Load]:
    for round_index in range(options.rounds):
        for messages in (10, 100):
            yield Load(
                part="envelopes",
                application="outerstep",
                nodes=1,
                round_index=round_index,
                pace=_pace(options, rate=None, messages=messages),
                messages=messages,
            )


def _flood(options: Options) -> Iterator[Load]:
    floods = (0.0, FLOOD_TPS)
    for round_index in range(options.rounds):
        for flood_tps in floods if round_index % 2 == 0 else floods[::-1]:
            yield Load(
                part="flood",
                application="outerstep",
                nodes=1,
                round_index=round_index,
                pace=_pace(options, rate=None),
                flood_tps=flood_tps,
            )


def _pace(options: Options, *, rate: float | None, messages: int = 1, nodes: int = 1) -> Pace:
    in_flight = IN_FLIGHT[messages] if nodes == 1 else min(IN_FLIGHT[messages], IN_FLIGHT_ON_SEVERAL)
    return Pace(rate=rate, in_flight=in_flight, seconds=options.seconds, warm_up_s=WARM_UP_S)
