"""The order of calls that ABCI 2.0 promises, asserted: one automaton over the calls of all connections of an engine.

The grammar is that of CometBFT's specification, `spec/abci/abci++_comet_expected_behavior.md`. Versions 0.38 and 0.40
write the start differently and the engines do both, so both are taken:

    start             = clean-start / recovery
    clean-start       = ([info] init-chain [state-sync] / state-sync) consensus-exec
    state-sync        = *state-sync-attempt success-sync info
    state-sync-attempt = offer-snapshot *apply-chunk
    success-sync      = offer-snapshot 1*apply-chunk
    recovery          = info [init-chain] consensus-exec
    consensus-exec    = (inf)consensus-height
    consensus-height  = *consensus-round finalize-block commit
    consensus-round   = proposer / non-proposer
    proposer          = *got-vote [prepare-proposal [process-proposal]] [extend]
    non-proposer      = *got-vote [process-proposal] [extend]
    extend            = *got-vote extend-vote *got-vote

Every part of a round is optional and rounds follow one another freely, so within a height any order of the four round
calls is legal. `info` may also come at any time, since the engine's RPC passes it on; check_tx, query, list_snapshots
and load_snapshot_chunk are outside the grammar. Beyond the specification's words, heights are held to: the calls of a
height name that height, and the next height is one higher.
"""

import threading
from collections import deque
from enum import Enum
from pathlib import Path
from typing import Any, Final

CALLS_SHOWN: Final = 40
"""How many of the last calls a report shows."""


class IllegalCall(RuntimeError):
    """The engine made a call that cannot come now; the text ends with the calls before it."""


class _Point(Enum):
    """Where in the grammar the engine is."""

    START = "nothing was called yet"
    HANDSHAKE = "Info was answered"
    GENESIS = "InitChain was answered"
    OFFERED = "a snapshot was offered"
    APPLYING = "chunks of a snapshot are being applied"
    RESTORED = "a snapshot was applied and Info asked for it"
    ROUNDS = "the rounds of a height go on"
    FINALIZED = "a block was finalized and not committed"
    COMMITTED = "a block was committed"


_ROUND_CALLS: Final = frozenset({"prepare_proposal", "process_proposal", "extend_vote", "verify_vote_extension"})
_HEIGHT_CALLS: Final = _ROUND_CALLS | {"finalize_block"}
_READY: Final = frozenset({_Point.HANDSHAKE, _Point.GENESIS, _Point.RESTORED, _Point.ROUNDS, _Point.COMMITTED})
"""Where a height may begin or go on."""
_SYNCING: Final = frozenset({_Point.OFFERED, _Point.APPLYING, _Point.RESTORED})
_AFTER_INFO: Final = {_Point.START: _Point.HANDSHAKE, _Point.APPLYING: _Point.RESTORED}

_LEGAL: Final[dict[str, tuple[frozenset[_Point], _Point]]] = {
    "init_chain": (frozenset({_Point.START, _Point.HANDSHAKE}), _Point.GENESIS),
    "offer_snapshot": (_SYNCING | {_Point.START, _Point.HANDSHAKE, _Point.GENESIS}, _Point.OFFERED),
    "apply_snapshot_chunk": (_SYNCING, _Point.APPLYING),
    **dict.fromkeys(_ROUND_CALLS, (_READY, _Point.ROUNDS)),
    "finalize_block": (_READY, _Point.FINALIZED),
    "commit": (frozenset({_Point.FINALIZED}), _Point.COMMITTED),
}
"""Of each ordered call: where it may come, and where the engine is after it."""


class CallGrammar:
    """Follows one engine's calls; safe to use from several threads."""

    def __init__(self, report: Path | None = None) -> None:
        """`report`: a file that each violation is appended to, for whoever cannot see this process end."""
        self._report = report
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=CALLS_SHOWN)
        self._begin()

    def check(self, method: str, request: Any) -> None:
        """Take the next call, `method` being the name of its field in `Request`; one outside the grammar is ignored.

        Raises: IllegalCall.
        """
        if method != "info" and method not in _LEGAL:
            return
        with self._lock:
            fault = self._fault(method, request)
            self._last.append(_shown(method, request))
            if fault is not None:
                raise self._violation(fault)
            self._step(method, request)

    def forget(self) -> None:
        """The engine has gone: whoever comes next begins at the start."""
        with self._lock:
            if self._last:
                self._last.append("(the engine left)")
            self._begin()

    def _begin(self) -> None:
        self._point = _Point.START
        self._height: int | None = None
        """The height that the calls must name; None until one has named it."""

    def _fault(self, method: str, request: Any) -> str | None:
        if method == "info":
            return None
        if self._point not in _LEGAL[method][0]:
            return f"{method} cannot come when {self._point.value}"
        if method in _HEIGHT_CALLS and self._height not in (None, request.height):
            return f"{method} names height {request.height}; it should be {self._height}"
        return None

    def _step(self, method: str, request: Any) -> None:
        if method == "info":
            self._point = _AFTER_INFO.get(self._point, self._point)
            return
        if method == "init_chain":
            self._height = max(1, request.initial_height)
        elif method == "offer_snapshot":
            self._height = request.snapshot.height + 1
        elif method in _HEIGHT_CALLS:
            self._height = request.height
        elif method == "commit" and self._height is not None:
            self._height += 1
        self._point = _LEGAL[method][1]

    def _violation(self, fault: str) -> IllegalCall:
        error = IllegalCall(f"illegal order of ABCI calls: {fault}. The last calls: {', '.join(self._last)}")
        if self._report is not None:
            with self._report.open("a") as file:
                file.write(f"{error}\n")
        return error


def _shown(method: str, request: Any) -> str:
    if method in _HEIGHT_CALLS:
        return f"{method} {request.height}"
    return f"{method} {request.snapshot.height}" if method == "offer_snapshot" else method
