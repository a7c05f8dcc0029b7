"""Answers to ABCI Query, always from the last committed state. Malformed queries get a code and a log, never more.

    path `key`     data = raw state key. `value` is the record; an absent key has an empty value (no record is empty).
                   With `prove`, proof_ops holds one operator: type PROOF_TYPE, key = the state key, data = KeyProof.
    path `range`   data = canonical msgpack [prefix, start, limit]; `value` is canonical msgpack [[key, value], ...].

`height` of the answer is the height whose state it comes from; the app hash of that state stands in the header of the
next block. Only the last height is kept, so `height` of a request is 0 or that one.
"""

from itertools import islice
from typing import Final

from abci_app.proofs import PROOF_TYPE
from abci_app.server import abci_pb2 as pb
from abci_app.store import CommittedState, Store
from primitives.encoding import EncodingError, decode, encode

UNKNOWN_PATH: Final = 1
MALFORMED_DATA: Final = 2
HEIGHT_UNAVAILABLE: Final = 3
MAX_RANGE_ITEMS: Final = 1000
CODESPACE: Final = "query"


class QueryError(ValueError):
    """A query that cannot be answered."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def answer_query(store: Store, request: pb.RequestQuery) -> pb.ResponseQuery:
    """The answer, or a response with one of the codes above and the reason as its log."""
    committed = store.committed
    try:
        if request.path == b"key":
            return _answer_key(store, request)
        if request.path == b"range":
            _check_height(request, committed)
            return pb.ResponseQuery(value=_read_range(committed, request), height=committed.height)
        raise QueryError(UNKNOWN_PATH, f"unknown path {request.path[:64]!r}; there are key and range")
    except QueryError as error:
        return pb.ResponseQuery(code=error.code, log=str(error), height=committed.height, codespace=CODESPACE)


def _answer_key(store: Store, request: pb.RequestQuery) -> pb.ResponseQuery:
    if not request.data:
        raise QueryError(MALFORMED_DATA, "data is empty; it should be a state key")
    if not request.prove:
        committed = store.committed
        _check_height(request, committed)
        return pb.ResponseQuery(key=request.data, value=committed.get(request.data) or b"", height=committed.height)
    proof, committed = store.prove(request.data)
    _check_height(request, committed)
    operator = pb.ProofOp(type=PROOF_TYPE, key=request.data, data=proof.to_bytes())
    return pb.ResponseQuery(
        key=request.data, value=proof.value or b"", height=committed.height, proof_ops=pb.ProofOps(ops=[operator])
    )


def _read_range(committed: CommittedState, request: pb.RequestQuery) -> bytes:
    try:
        prefix, start, limit = decode(request.data, tuple[bytes, bytes, int])
    except EncodingError as error:
        raise QueryError(MALFORMED_DATA, f"data should be msgpack [prefix, start, limit]: {error}") from error
    if not 1 <= limit <= MAX_RANGE_ITEMS:
        raise QueryError(MALFORMED_DATA, f"limit is {limit}; it should be 1 to {MAX_RANGE_ITEMS}")
    return encode(list(islice(committed.iterate(prefix, start=start), limit)))


def _check_height(request: pb.RequestQuery, committed: CommittedState) -> None:
    if request.height not in (0, committed.height):
        raise QueryError(HEIGHT_UNAVAILABLE, f"only height {committed.height} can be queried, not {request.height}")
