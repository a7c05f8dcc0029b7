"""Keys, signatures, addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.keys import KeyFormatError, PrivateKey, format_address, parse_address, verify_signature

KEY = PrivateKey.from_seed("tests/keys")
DIGEST = b"\x07" * 32


def test_signature_holds_for_its_key_and_digest_only() -> None:
    signature = KEY.sign(DIGEST)
    assert verify_signature(KEY.public_key, DIGEST, signature)
    assert not verify_signature(KEY.public_key, b"\x08" * 32, signature)
    assert not verify_signature(PrivateKey.from_seed("other").public_key, DIGEST, signature)


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
def test_malformed_signature_input_is_false_and_never_raises(key: bytes, digest: bytes, signature: bytes) -> None:
    assert not verify_signature(key, digest, signature)


@given(st.integers(0, 63), st.integers(1, 255))
def test_flipped_bits_spoil_a_signature(position: int, flip: int) -> None:
    signature = bytearray(KEY.sign(DIGEST))
    signature[position] ^= flip
    assert not verify_signature(KEY.public_key, DIGEST, bytes(signature))


@given(st.binary(min_size=20, max_size=20))
def test_address_survives_its_text_form(address: bytes) -> None:
    assert parse_address(format_address(address)) == address


@given(st.integers(6, 43), st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l"))
def test_mistyped_address_is_refused(position: int, letter: str) -> None:
    text = format_address(KEY.address)
    typo = text[:position] + letter + text[position + 1 :]
    if typo != text:
        with pytest.raises(KeyFormatError):
            parse_address(typo)


@pytest.mark.parametrize(
    "text", ["", "outer1", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "Ünïcode", "outer1" + "q" * 500]
)
def test_foreign_text_is_not_an_address(text: str) -> None:
    with pytest.raises(KeyFormatError):
        parse_address(text)


@pytest.mark.parametrize("secret", [b"", b"\x00" * 32, b"\xff" * 32, b"\x01" * 31])
def test_secrets_outside_the_group_are_refused(secret: bytes) -> None:
    with pytest.raises(KeyFormatError):
        PrivateKey(secret)


def test_secret_does_not_show_in_repr() -> None:
    assert KEY.secret.hex() not in repr(KEY)
