"""Frames: any split of the stream gives the same messages; what is no frame is refused early."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app.server.frames import FrameError, FrameParser, encode_length, frame


@given(
    messages=st.lists(st.binary(max_size=300), max_size=12),
    cuts=st.lists(st.integers(min_value=0, max_value=4000), max_size=20),
)
def test_messages_do_not_depend_on_where_reads_end(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(message) for message in messages)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parser = FrameParser()
    parsed = [m for start, end in pairwise(edges) for m in parser.feed(stream[start:end])]
    assert parsed == messages
    assert parser.pending_bytes == 0


def test_one_byte_at_a_time() -> None:
    parser = FrameParser()
    stream = frame(b"a" * 200) + frame(b"") + frame(b"b")
    assert [m for i in range(len(stream)) for m in parser.feed(stream[i : i + 1])] == [b"a" * 200, b"", b"b"]


def test_a_message_much_larger_than_a_read() -> None:
    message = bytes(range(256)) * 65536
    stream = memoryview(frame(message))
    parser = FrameParser()
    parsed = [m for i in range(0, len(stream), 65536) for m in parser.feed(stream[i : i + 65536])]
    assert parsed == [message]


def test_a_length_is_least_significant_group_first() -> None:
    assert encode_length(0) == b"\x00"
    assert encode_length(127) == b"\x7f"
    assert encode_length(300) == b"\xac\x02"


def test_the_limit_itself_passes_and_one_more_is_refused_before_the_message_comes() -> None:
    parser = FrameParser(max_message_bytes=1000)
    assert parser.feed(frame(b"x" * 1000)) == [b"x" * 1000]
    with pytest.raises(FrameError, match="1001 bytes; at most 1000"):
        parser.feed(encode_length(1001))


def test_a_length_without_end_is_refused() -> None:
    parser = FrameParser()
    assert parser.feed(b"\xff\xff\xff\xff") == []
    with pytest.raises(FrameError, match="more than 5 bytes"):
        parser.feed(b"\xff")


@given(st.lists(st.binary(max_size=64), max_size=20))
def test_garbage_is_messages_or_a_frame_error(chunks: list[bytes]) -> None:
    parser = FrameParser(max_message_bytes=100)
    fed = 0
    try:
        for chunk in chunks:
            fed += len(chunk)
            assert all(len(message) <= 100 for message in parser.feed(chunk))
            assert parser.pending_bytes <= 105
    except FrameError:
        assert fed > 0
