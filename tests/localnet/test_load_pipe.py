"""One connection of a load: what it counts, and what it takes for a failure."""

import asyncio
import json
from typing import Any

import pytest

from localnet.load.pipe import MAX_REASON_CHARACTERS, MOST_UNANSWERED, Pipe


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Connected:
    """A pipe on a fake connection, and what it reported."""

    def __init__(self) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self.transport = FakeTransport()
        self.pipe = Pipe(self._count, self.failures.append)
        self.pipe.connection_made(self.transport)

    def _count(self) -> None:
        self.answered += 1

    def answer(self, *documents: object) -> None:
        """All of them arrive at once."""
        bodies = [json.dumps(document, separators=(",", ":")).encode() for document in documents]
        answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies]
        self.pipe.data_received(b"".join(answers))


def refusal(reason: str) -> dict[str, object]:
    return {"id": 0, "error": {"code": -32603, "message": "Internal error", "data": reason}}


TAKEN = {"id": 0, "result": {"code": 0}}


@pytest.fixture
def connected() -> Connected:
    return Connected()


def test_refusals_are_counted_by_their_reason(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.pipe.send(b"")
    connected.answer([TAKEN, refusal("mempool is full"), TAKEN, refusal("mempool is full")])
    connected.answer([refusal("tx too large")])
    assert connected.pipe.refusals == {"Internal error: mempool is full": 2, "Internal error: tx too large": 1}


def test_a_single_transaction_is_answered_without_a_list(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.answer(refusal("no"))
    assert connected.pipe.refusals == {"Internal error: no": 1}


def test_what_was_taken_is_no_refusal(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.answer([TAKEN, TAKEN])
    assert not connected.pipe.refusals
    assert connected.answered == 1


def test_a_long_reason_is_cut(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.answer(refusal("x" * 1000))
    assert [len(reason) for reason in connected.pipe.refusals] == [MAX_REASON_CHARACTERS]


def test_room_comes_back_with_answers(connected: Connected) -> None:
    for _ in range(MOST_UNANSWERED):
        assert connected.pipe.has_room
        connected.pipe.send(b"request")
    assert not connected.pipe.has_room
    connected.answer([TAKEN], [TAKEN])
    for _ in range(2):
        assert connected.pipe.has_room
        connected.pipe.send(b"request")
    assert not connected.pipe.has_room
    assert connected.transport.written == [b"request"] * (MOST_UNANSWERED + 2)


def test_a_connection_that_ends_with_requests_on_the_way_is_a_failure(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.pipe.connection_lost(None)
    assert connected.failures == ["CometBFT's RPC closed a connection without answering"]


def test_sending_on_a_connection_that_has_ended_is_a_failure(connected: Connected) -> None:
    connected.transport.close()
    connected.pipe.connection_lost(None)
    assert connected.failures == []
    connected.pipe.send(b"")
    assert connected.failures == ["CometBFT's RPC closed a connection without answering"]
    assert connected.transport.written == []


def test_an_answer_of_another_form_is_one_failure_and_ends_the_connection(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.pipe.data_received(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nwait")
    connected.pipe.connection_lost(None)
    assert len(connected.failures) == 1
    assert "429" in connected.failures[0]
    assert connected.transport.closed


def test_closing_it_ourselves_is_no_failure(connected: Connected) -> None:
    connected.pipe.send(b"")
    connected.pipe.close()
    connected.pipe.connection_lost(None)
    assert connected.failures == []
