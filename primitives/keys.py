"""Account and service keys: BIP-340 Schnorr signatures over secp256k1 (libsecp256k1 through coincurve).

One function, `verify_signature`, decides signatures for the whole chain. CometBFT's own validator keys stay Ed25519.
"""

import secrets
from functools import lru_cache
from typing import Final

import bech32
from coincurve import PrivateKey as _CurvePrivateKey
from coincurve import PublicKeyXOnly

from primitives.hashing import tagged_hash

ADDRESS_BYTES: Final = 20
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
ADDRESS_PREFIX: Final = "outer"


class KeyFormatError(ValueError):
    """A key or address that is not of its form."""


class PrivateKey:
    """A secp256k1 secret. Its text form never appears in `repr`."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 32:
            raise KeyFormatError(f"a private key has 32 bytes, not {len(secret)}")
        try:
            self._key = _CurvePrivateKey(secret)
        except ValueError as error:
            raise KeyFormatError("not a secp256k1 private key") from error
        self.public_key: bytes = PublicKeyXOnly.from_secret(secret).format()
        """32 bytes, x-only (BIP-340)."""
        self.address: bytes = address_of(self.public_key)
        """20 bytes."""

    @classmethod
    def generate(cls) -> "PrivateKey":
        return cls(_CurvePrivateKey().secret)

    @classmethod
    def from_seed(cls, seed: str) -> "PrivateKey":
        """The same key for the same text: for tests and local networks only."""
        return cls(tagged_hash("outerstep/insecure-seed-key/1", seed.encode()))

    @property
    def secret(self) -> bytes:
        return self._key.secret

    def sign(self, digest: bytes) -> bytes:
        """A 64-byte Schnorr signature of a 32-byte digest."""
        return self._key.sign_schnorr(digest, secrets.token_bytes(32))

    def __repr__(self) -> str:
        return f"PrivateKey({format_address(self.address)})"


_parse_public_key: Final = lru_cache(maxsize=8192)(PublicKeyXOnly)
"""Finding the point of a key takes a good part of a verification, and most signers sign often."""


def verify_signature(public_key: bytes, digest: bytes, signature: bytes) -> bool:
    """Whether `signature` (64 bytes) over `digest` (32 bytes) is by x-only `public_key` (32 bytes): BIP-340.

    Malformed input of any kind is simply False. Releases the GIL while it computes.
    """
    if len(public_key) != PUBLIC_KEY_BYTES or len(digest) != 32 or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        return _parse_public_key(public_key).verify(signature, digest)
    except ValueError:
        return False


SIGNATURE_RECORD_BYTES: Final = PUBLIC_KEY_BYTES + 32 + SIGNATURE_BYTES


def verify_record(record: bytes) -> bool:
    """`verify_signature` of public key, digest and signature in one piece of 128 bytes."""
    digest_end = PUBLIC_KEY_BYTES + 32
    return verify_signature(record[:PUBLIC_KEY_BYTES], record[PUBLIC_KEY_BYTES:digest_end], record[digest_end:])


@lru_cache(maxsize=8192)
def address_of(public_key: bytes) -> bytes:
    """The 20-byte address of an x-only public key."""
    return tagged_hash("outerstep/address/1", public_key)[:ADDRESS_BYTES]


def format_address(address: bytes) -> str:
    """The text form with checksum (bech32): ``outer1…``."""
    words = bech32.convertbits(address, 8, 5)
    if words is None or len(address) != ADDRESS_BYTES:
        raise KeyFormatError(f"an address has {ADDRESS_BYTES} bytes, not {len(address)}")
    return str(bech32.bech32_encode(ADDRESS_PREFIX, words))


def parse_address(text: str) -> bytes:
    """The 20 bytes behind ``outer1…``.

    Raises: KeyFormatError with what is wrong: prefix, checksum or length.
    """
    prefix, words = bech32.bech32_decode(text)
    if prefix is None or words is None:
        raise KeyFormatError(f"{text!r} is not an address: the checksum does not match (mistyped?)")
    if prefix != ADDRESS_PREFIX:
        raise KeyFormatError(f"{text!r} is not an address of this network: it should start with {ADDRESS_PREFIX}1")
    data = bech32.convertbits(words, 5, 8, False)
    if data is None or len(data) != ADDRESS_BYTES:
        raise KeyFormatError(f"{text!r} is not an address: wrong length")
    return bytes(data)
