"""Key files: JSON, mode 0600, the secret in the clear or sealed by a passphrase (scrypt, then AES-256-GCM).

The address stands in the file readable either way, and is bound into the seal.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from node.errors import SetupError
from primitives.keys import KeyFormatError, PrivateKey, address_of, format_address, parse_address

KEY_TYPE: Final = "outerstep-key/1"
PASSPHRASE_VARIABLE: Final = "OUTERSTEP_PASSPHRASE"
"""Environment variable that daemons take the passphrase of their keys from."""
SCRYPT_N: Final = 2**15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
MAX_SCRYPT_N: Final = 2**20
"""A key file cannot make us spend more than about a gigabyte of memory."""
MAX_KEY_FILE_BYTES: Final = 64 * 1024


class KeyFileError(SetupError):
    """A key file that cannot be read, written or opened; the message says what to do."""


def write_key(path: Path, key: PrivateKey, passphrase: str | None = None) -> None:
    """Write a new key file, whole or not at all, readable by its owner only.

    Raises: KeyFileError when the file exists (a key is never overwritten) or cannot be written.
    """
    document: dict[str, Any] = {"type": KEY_TYPE, "address": format_address(key.address)}
    document["public_key"] = key.public_key.hex()
    if passphrase is None:
        document["secret"] = key.secret.hex()
    else:
        document["sealed"] = _seal(key, passphrase)
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def load_key(path: Path, passphrase: str | None = None) -> PrivateKey:
    """The key in a file; the passphrase comes from OUTERSTEP_PASSPHRASE when none is given.

    Raises: KeyFileError: missing, readable by others, not a key file, passphrase missing or wrong.
    """
    document = _read_document(path)
    try:
        if "secret" in document:
            key = PrivateKey(bytes.fromhex(document["secret"]))
        else:
            key = PrivateKey(_open_seal(path, document, passphrase or os.environ.get(PASSPHRASE_VARIABLE)))
    except (KeyFormatError, KeyError, TypeError, ValueError) as error:
        raise KeyFileError(f"{path} is damaged: {error}") from error
    if format_address(key.address) != document["address"]:
        raise KeyFileError(f"{path} is damaged: the address in it is not that of its key")
    return key


def key_address(path: Path) -> bytes:
    """The address of a key file, without opening a seal.

    Raises: KeyFileError.
    """
    return parse_address(_read_document(path)["address"])


def public_key(path: Path) -> bytes:
    """The x-only public key in a key file, 32 bytes, without opening a seal.

    Raises: KeyFileError.
    """
    document = _read_document(path)
    try:
        found = bytes.fromhex(document["public_key"])
    except (KeyError, TypeError, ValueError) as error:
        raise KeyFileError(f"{path} is damaged: {error!r}") from error
    if format_address(address_of(found)) != document["address"]:
        raise KeyFileError(f"{path} is damaged: the address in it is not that of its key")
    return found


def is_sealed(path: Path) -> bool:
    """Whether a passphrase is needed to load the key.

    Raises: KeyFileError.
    """
    return "secret" not in _read_document(path)


def write_private(path: Path, data: bytes) -> None:
    """A new file of mode 0600 that is whole or absent.

    Raises: KeyFileError when it exists or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise KeyFileError(f"{path} exists; keys are never overwritten (move it away first)") from error
    except OSError as error:
        raise KeyFileError(f"cannot write {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_document(path: Path) -> dict[str, Any]:
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            raise KeyFileError(f"{path} can be read by others (mode {mode & 0o777:o}); run: chmod 600 {path}")
        with path.open("rb") as file:
            document = json.loads(file.read(MAX_KEY_FILE_BYTES))
    except FileNotFoundError as error:
        raise KeyFileError(f"there is no key file {path}") from error
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise KeyFileError(f"{path} is not a key file (not JSON)") from error
    if not isinstance(document, dict) or document.get("type") != KEY_TYPE:
        raise KeyFileError(f"{path} is not a key file (its type should be {KEY_TYPE!r})")
    try:
        parse_address(str(document.get("address")))
    except KeyFormatError as error:
        raise KeyFileError(f"{path} is damaged: {error}") from error
    return document


def _seal(key: PrivateKey, passphrase: str) -> dict[str, Any]:
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    wrapping = _derive(passphrase, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    ciphertext = AESGCM(wrapping).encrypt(nonce, key.secret, key.address)
    return {
        "kdf": "scrypt",
        "n": SCRYPT_N,
        "r": SCRYPT_R,
        "p": SCRYPT_P,
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "ciphertext": ciphertext.hex(),
    }


def _open_seal(path: Path, document: dict[str, Any], passphrase: str | None) -> bytes:
    if not passphrase:
        raise KeyFileError(f"{path} is sealed by a passphrase; give it in the environment as {PASSPHRASE_VARIABLE}")
    sealed = document["sealed"]
    n, r, p = sealed["n"], sealed["r"], sealed["p"]
    if not (type(n) is type(r) is type(p) is int and 1 < n <= MAX_SCRYPT_N and 0 < r <= 16 and 0 < p <= 16):
        raise ValueError("the numbers of scrypt are out of bounds")
    wrapping = _derive(passphrase, bytes.fromhex(sealed["salt"]), n, r, p)
    address = parse_address(document["address"])
    try:
        nonce, ciphertext = bytes.fromhex(sealed["nonce"]), bytes.fromhex(sealed["ciphertext"])
        return AESGCM(wrapping).decrypt(nonce, ciphertext, address)
    except InvalidTag as error:
        raise KeyFileError(f"wrong passphrase for {path} (or the file was changed)") from error


def _derive(passphrase: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode())
