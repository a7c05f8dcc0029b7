"""Answers of CometBFT's RPC out of a stream, however it is split."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localnet.load.answers import MAX_BODY_BYTES, MAX_HEAD_BYTES, AnswerError, AnswerParser

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def counted(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def chunked(chunks: list[bytes]) -> bytes:
    lines = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + lines + b"0\r\n\r\n"


bodies = st.binary(max_size=60)
answers = st.one_of(
    bodies.map(lambda body: (counted(body), body)),
    st.lists(st.binary(min_size=1, max_size=40), max_size=4).map(lambda chunks: (chunked(chunks), b"".join(chunks))),
)


@settings(deadline=None)
@given(st.lists(answers, max_size=5), st.data())
def test_bodies_come_out_whole_and_in_order_wherever_the_stream_is_split(
    sent: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(raw for raw, _ in sent)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    parser = AnswerParser()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:end])
    assert found == [body for _, body in sent]


def test_a_body_comes_with_its_last_byte_and_not_before() -> None:
    parser = AnswerParser()
    raw = counted(b"body")
    assert parser.feed(raw[:-1]) == []
    assert parser.feed(raw[-1:]) == [b"body"]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nbroken", "500 .*broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", "without its length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "without its length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "chunk without its length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), "answer of 16777217 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000001\r\n", "answer of 16777217 bytes"),
        (b"x" * (MAX_HEAD_BYTES + 1), "head of an answer is too long"),
    ],
)
def test_what_is_no_answer_of_cometbft_is_an_error_that_says_why(stream: bytes, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason):
        AnswerParser().feed(stream)
