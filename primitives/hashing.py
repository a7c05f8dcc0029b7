"""Hashes with the domain in front, so that bytes hashed for one purpose mean nothing for another."""

import hashlib
from functools import cache
from typing import Final

HASH_BYTES: Final = 32


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """SHA-256 of `data`, 32 bytes."""
    return hashlib.sha256(data).digest()


@cache
def _tag_prefix(tag: str) -> bytes:
    digest = hashlib.sha256(tag.encode("ascii")).digest()
    return digest + digest


def tagged_hash(tag: str, data: bytes | bytearray) -> bytes:
    """SHA-256(SHA-256(tag) || SHA-256(tag) || data), 32 bytes: the tagged hash of BIP-340.

    `tag` names the purpose and its version, for example ``outerstep/tx/1``.
    """
    return hashlib.sha256(_tag_prefix(tag) + data).digest()
