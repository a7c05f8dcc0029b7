"""Key files: for their owner alone, sealed or not, never overwritten, never half-written."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node import keys
from node.keys import KeyFileError, is_sealed, key_address, load_key, public_key, write_key
from primitives.keys import PrivateKey

KEY = PrivateKey.from_seed("key")


@pytest.fixture(autouse=True)
def quick_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SCRYPT_N", 2**10)
    monkeypatch.delenv("OUTERSTEP_PASSPHRASE", raising=False)


@pytest.mark.parametrize("passphrase", [None, "correct horse", "ünïcödé"])
def test_key_comes_back_from_its_file(tmp_path: Path, passphrase: str | None) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY, passphrase)
    assert load_key(path, passphrase).secret == KEY.secret
    assert key_address(path) == KEY.address
    assert public_key(path) == KEY.public_key
    assert is_sealed(path) == (passphrase is not None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["key.json"]


def test_sealed_file_does_not_hold_the_secret(tmp_path: Path) -> None:
    write_key(tmp_path / "key.json", KEY, "passphrase")
    assert KEY.secret.hex() not in (tmp_path / "key.json").read_text()


def test_wrong_or_missing_passphrase_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY, "right")
    with pytest.raises(KeyFileError, match="wrong passphrase"):
        load_key(path, "wrong")
    with pytest.raises(KeyFileError, match="OUTERSTEP_PASSPHRASE"):
        load_key(path)
    monkeypatch.setenv("OUTERSTEP_PASSPHRASE", "right")
    assert load_key(path).secret == KEY.secret


def test_existing_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY)
    with pytest.raises(KeyFileError, match="never overwritten"):
        write_key(path, PrivateKey.from_seed("other"))
    assert load_key(path).secret == KEY.secret


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_key(path)


def test_missing_file_or_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="there is no key file"):
        load_key(tmp_path / "key.json")
    with pytest.raises(KeyFileError, match="cannot write"):
        write_key(tmp_path / "absent" / "key.json", KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other/1"},
        {"address": "outer1qqqq"},
        {"address": None},
        {"secret": "zz"},
        {"secret": "00" * 32},
        {"secret": PrivateKey.from_seed("other").secret.hex()},
        {"secret": 5},
    ],
)
def test_damaged_plain_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(KeyFileError):
        load_key(path)


@pytest.mark.parametrize(
    "change", [{"n": 2**40}, {"n": True}, {"n": 1000}, {"r": 0}, {"salt": "zz"}, {"nonce": ""}, {"ciphertext": "00"}]
)
def test_damaged_seal_is_refused_without_great_cost(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "key.json"
    write_key(path, KEY, "right")
    document = json.loads(path.read_text())
    document["sealed"].update(change)
    path.write_text(json.dumps(document))
    with pytest.raises(KeyFileError):
        load_key(path, "right")


def test_seal_is_bound_to_its_address(tmp_path: Path) -> None:
    write_key(tmp_path / "a.json", KEY, "right")
    write_key(tmp_path / "b.json", PrivateKey.from_seed("other"), "right")
    mixed = {
        **json.loads((tmp_path / "a.json").read_text()),
        "sealed": json.loads((tmp_path / "b.json").read_text())["sealed"],
    }
    (tmp_path / "a.json").write_text(json.dumps(mixed))
    with pytest.raises(KeyFileError, match="wrong passphrase"):
        load_key(tmp_path / "a.json", "right")


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_key_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("keys") / "key.json"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError):
        load_key(path)
