"""The codes themselves, against references that share no code with them, and pinned vectors."""

import random

import numpy as np
import pytest
import reedsolo
from hypothesis import given, settings
from hypothesis import strategies as st

from da_layer.codecs import codec_for
from da_layer.errors import InvalidBlob, NotEnoughRows, WrongRow
from da_layer.gf256 import Matrix, invert


def matrix(rows: int, width: int, seed: int = 0) -> Matrix:
    return np.frombuffer(random.Random(seed).randbytes(rows * width), dtype=np.uint8).reshape(rows, width)


def slow_product(a: int, b: int) -> int:
    """Schoolbook multiplication of polynomials modulo 0x11d."""
    result = 0
    while b:
        if b & 1:
            result ^= a
        a <<= 1
        if a & 0x100:
            a ^= 0x11D
        b >>= 1
    return result


def slow_inverse(a: int) -> int:
    return next(b for b in range(1, 256) if slow_product(a, b) == 1)


@settings(max_examples=30, deadline=None)
@given(k=st.integers(1, 40), parity=st.integers(1, 40), seed=st.integers(0, 99))
def test_rs8_is_bit_identical_to_reedsolo_column_by_column(k: int, parity: int, seed: int) -> None:
    data = matrix(k, 3, seed)
    rows = np.concatenate([data, codec_for("rs8", k, k + parity).parity(data)])
    coder = reedsolo.RSCodec(parity)
    for column in range(3):
        assert rows[:, column].tobytes() == bytes(coder.encode(data[:, column].tobytes()))


@settings(max_examples=15, deadline=None)
@given(k=st.integers(1, 20), parity=st.integers(1, 40), seed=st.integers(0, 99))
def test_rs8_decodes_erasures_to_what_reedsolo_decodes(k: int, parity: int, seed: int) -> None:
    data = matrix(k, 2, seed)
    codec = codec_for("rs8", k, k + parity)
    rows = np.concatenate([data, codec.parity(data)])
    kept = random.Random(seed).sample(range(k + parity), k)
    restored = codec.reconstruct(kept, rows[kept])
    lost = [index for index in range(k + parity) if index not in kept]
    damaged = rows.copy()
    damaged[lost] = 0
    coder = reedsolo.RSCodec(parity)
    for column in range(2):
        by_reedsolo = coder.decode(damaged[:, column].tobytes(), erase_pos=lost, only_erasures=True)[0]
        assert restored[:, column].tobytes() == bytes(by_reedsolo)


@settings(max_examples=20, deadline=None)
@given(k=st.integers(1, 40), parity=st.integers(1, 40), seed=st.integers(0, 99))
def test_isal_is_the_cauchy_code_by_its_definition(k: int, parity: int, seed: int) -> None:
    """Parity row p is the sum over i of data row i divided by (p xor i), p = k, k + 1, ..."""
    data = matrix(k, 2, seed)
    rows = codec_for("isal", k, k + parity).parity(data)
    for p, column in ((0, 0), (parity - 1, 1), (parity // 2, 0)):
        total = 0
        for i in range(k):
            total ^= slow_product(slow_inverse((k + p) ^ i), int(data[i, column]))
        assert rows[p, column] == total


GOLDEN = {
    "rs8": "9c9263f9b1dbfd262d499ecf",
    "isal": "1a7a5a3d9afada3c076747ed",
}


@pytest.mark.parametrize("codec", ["rs8", "isal"])
def test_golden_parity_rows(codec: str) -> None:
    """FAULTS D16: a new version of a library must not change the code."""
    data = np.arange(1, 17, dtype=np.uint8).reshape(4, 4)
    assert codec_for(codec, 4, 7).parity(data).tobytes().hex() == GOLDEN[codec]


@pytest.mark.parametrize("codec", ["rs8", "isal"])
def test_rows_may_come_in_any_order(codec: str) -> None:
    data = matrix(3, 64)
    code = codec_for(codec, 3, 5)
    rows = np.concatenate([data, code.parity(data)])
    for kept in ([4, 0, 2], [2, 1, 0], [3, 4, 1]):
        assert np.array_equal(code.reconstruct(kept, rows[kept]), data)


@pytest.mark.parametrize("codec", ["rs8", "isal"])
@pytest.mark.parametrize("indices", [[0, 0, 1], [0, 1, 5], [-1, 0, 1]])
def test_duplicate_and_unknown_row_numbers_are_refused(codec: str, indices: list[int]) -> None:
    with pytest.raises(WrongRow):
        codec_for(codec, 3, 5).reconstruct(indices, matrix(3, 64))


@pytest.mark.parametrize("codec", ["rs8", "isal"])
def test_too_few_rows_are_refused(codec: str) -> None:
    with pytest.raises(NotEnoughRows):
        codec_for(codec, 3, 5).reconstruct([0, 1], matrix(2, 64))


def test_unknown_codes_are_refused() -> None:
    with pytest.raises(InvalidBlob, match="rs8, isal"):
        codec_for("leopard", 2, 3)


def test_a_singular_matrix_has_no_inverse() -> None:
    with pytest.raises(ValueError, match="singular"):
        invert(np.ones((2, 2), dtype=np.uint8))
