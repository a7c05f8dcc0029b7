"""Text: the split, the alphabet, the bigram yardstick, the standard library as a text."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from tests.training.helpers import tiny_corpus
from training.corpus import HELD_OUT_UNIT, Corpus, standard_library_text
from training.errors import CorpusError


def test_split_is_the_last_five_percent_in_whole_units_and_loses_nothing() -> None:
    data = bytes(range(100)) * 1000
    corpus = Corpus(data)
    assert len(corpus.held_out) == 100_000 * 5 // 100 // HELD_OUT_UNIT * HELD_OUT_UNIT
    tokens = np.concatenate([corpus.train, corpus.held_out])
    assert bytes(np.frombuffer(corpus.alphabet, dtype=np.uint8)[tokens]) == data


def test_alphabet_is_the_set_of_bytes_that_occur() -> None:
    assert Corpus(b"\xff\x00ab" * 5000).alphabet == b"\x00ab\xff"


def test_a_text_too_short_to_split_is_refused() -> None:
    with pytest.raises(CorpusError, match="at least"):
        Corpus(b"short")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="none"):
        Corpus.from_file(tmp_path / "none.txt")


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"abcd\r\n" * 4000)
    assert Corpus.from_file(path).size_bytes == 24_000


def test_bigram_loss_agrees_with_counting_by_hand() -> None:
    data = (b"aab" * 4000 + b"abba" * 3000)[:20_000]
    corpus = Corpus(data)
    train, held_out = corpus.train.tolist(), corpus.held_out.tolist()
    counts = {(a, b): 1 for a in range(2) for b in range(2)}
    for pair in itertools.pairwise(train):
        counts[pair] += 1
    losses = [-math.log(counts[a, b] / (counts[a, 0] + counts[a, 1])) for a, b in itertools.pairwise(held_out)]
    assert corpus.bigram_loss() == pytest.approx(sum(losses) / len(losses))


def test_held_out_windows_lie_side_by_side_and_thin_out_evenly() -> None:
    corpus = tiny_corpus()
    every = corpus.held_out_starts(16)
    assert every.tolist() == list(range(0, len(corpus.held_out) - 16, 16))
    some = corpus.held_out_starts(16, 10)
    assert len(some) == 10
    assert set(some.tolist()) <= set(every.tolist())
    assert some[-1] >= every[-1] * 0.85


def test_a_window_longer_than_the_held_out_text_is_refused() -> None:
    with pytest.raises(CorpusError, match="shorter than a window"):
        tiny_corpus().held_out_starts(10_000)


def test_standard_library_text_is_large_stable_and_utf8() -> None:
    text = standard_library_text(1_000_000)
    assert 500_000 < len(text) <= 1_000_000
    assert text == standard_library_text(1_000_000)
    assert b"def " in text
    text.decode("utf-8")


def test_standard_library_text_without_room_for_one_file_says_so() -> None:
    with pytest.raises(CorpusError, match="give a text file"):
        standard_library_text(10)
