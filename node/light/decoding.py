"""From CometBFT's JSON (`commit` and `validators` of its RPC) to light blocks: strict, bounded, one error for all.

Fields that are not known here are passed over, since they are in no hash and under no signature.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec

from node.light.blocks import (
    MAX_VALIDATORS,
    BlockId,
    Commit,
    CommitSignature,
    Header,
    LightBlock,
    Validator,
)
from node.light.hashes import NS_PER_S, validator_address

T = TypeVar("T")

KEY_TYPE: Final = "tendermint/PubKeyEd25519"
NO_TIME: Final = "0001-01-01T00:00:00Z"
"""How Go writes a time that is not there."""
TIME: Final = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?Z", re.ASCII)

Number = Annotated[str, msgspec.Meta(pattern=r"\A(0|[1-9][0-9]{0,19})\Z")]
"""64-bit numbers come as text."""
Hex = Annotated[str, msgspec.Meta(pattern=r"\A([0-9A-Fa-f]{2}){0,64}\Z")]
Base64 = Annotated[str, msgspec.Meta(max_length=128)]
Text = Annotated[str, msgspec.Meta(max_length=64)]


class DecodingError(ValueError):
    """Not the JSON of a light block; the text names the field where it can."""


class _Parts(msgspec.Struct):
    total: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    hash: Hex


class _BlockId(msgspec.Struct):
    hash: Hex
    parts: _Parts


class _Version(msgspec.Struct):
    block: Number
    app: Number = "0"


class _Header(msgspec.Struct):
    version: _Version
    chain_id: Text
    height: Number
    time: Text
    last_block_id: _BlockId
    last_commit_hash: Hex
    data_hash: Hex
    validators_hash: Hex
    next_validators_hash: Hex
    consensus_hash: Hex
    app_hash: Hex
    last_results_hash: Hex
    evidence_hash: Hex
    proposer_address: Hex


class _Signature(msgspec.Struct):
    block_id_flag: int
    validator_address: Hex
    timestamp: Text
    signature: Base64 | None


class _Commit(msgspec.Struct):
    height: Number
    round: int
    block_id: _BlockId
    signatures: Annotated[list[_Signature], msgspec.Meta(max_length=MAX_VALIDATORS)]


class _SignedHeader(msgspec.Struct):
    header: _Header
    commit: _Commit


class _CommitAnswer(msgspec.Struct):
    signed_header: _SignedHeader


class _Key(msgspec.Struct):
    type: Text
    value: Base64


class _Validator(msgspec.Struct):
    address: Hex
    pub_key: _Key
    voting_power: Number


class _ValidatorsAnswer(msgspec.Struct):
    block_height: Number
    validators: Annotated[list[_Validator], msgspec.Meta(max_length=MAX_VALIDATORS)]
    total: Number


HEX_FIELDS: Final = [name for name in Header.__struct_fields__ if name.endswith(("_hash", "_address"))]


def read_signed_header(answer: Any) -> tuple[Header, Commit]:
    """Header and commit out of the result of `commit`.

    Raises: DecodingError.
    """
    signed = _convert(answer, _CommitAnswer).signed_header
    return _header(signed.header), _commit(signed.commit)


def read_validators(answer: Any, height: int) -> tuple[tuple[Validator, ...], int]:
    """(One page of the validators of `height`, how many there are on all pages) out of the result of `validators`.

    Raises: DecodingError.
    """
    read = _convert(answer, _ValidatorsAnswer)
    if int(read.block_height) != height:
        raise DecodingError(f"validators of height {read.block_height} instead of {height}")
    return tuple(_validator(item) for item in read.validators), int(read.total)


def light_block(header: Header, commit: Commit, validators: tuple[Validator, ...]) -> LightBlock:
    """The three together.

    Raises: DecodingError.
    """
    return _checked({"header": header, "commit": commit, "validators": validators}, LightBlock)


def read_time(text: str) -> int:
    """Nanoseconds since 1970 of CometBFT's form of a time, in UTC.

    Raises: DecodingError.
    """
    match = TIME.fullmatch(text)
    if match is None:
        raise DecodingError(f"{text!r} is not a time in UTC")
    try:
        seconds = int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise DecodingError(f"{text!r} is not a time") from error
    return seconds * NS_PER_S + int((match[2] or "").ljust(9, "0"))


def read_base64(text: str) -> bytes:
    """Raises: DecodingError."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodingError(f"{text[:32]!r} is not base64") from error


def _header(raw: _Header) -> Header:
    fields: dict[str, Any] = {name: bytes.fromhex(getattr(raw, name)) for name in HEX_FIELDS}
    fields |= {"block_version": int(raw.version.block), "app_version": int(raw.version.app)}
    fields |= {"chain_id": raw.chain_id, "height": int(raw.height), "time_ns": read_time(raw.time)}
    return _checked({**fields, "last_block_id": _block_id(raw.last_block_id)}, Header)


def _commit(raw: _Commit) -> Commit:
    signatures = tuple(_signature(item) for item in raw.signatures)
    fields = {"height": int(raw.height), "round": raw.round, "block_id": _block_id(raw.block_id)}
    return _checked({**fields, "signatures": signatures}, Commit)


def _block_id(raw: _BlockId) -> BlockId:
    hashes = {"hash": bytes.fromhex(raw.hash), "parts_hash": bytes.fromhex(raw.parts.hash)}
    return _checked({**hashes, "parts_total": raw.parts.total}, BlockId)


def _signature(raw: _Signature) -> CommitSignature:
    time_ns = 0 if raw.timestamp == NO_TIME else read_time(raw.timestamp)
    fields = {"flag": raw.block_id_flag, "address": bytes.fromhex(raw.validator_address), "time_ns": time_ns}
    return _checked({**fields, "signature": read_base64(raw.signature or "")}, CommitSignature)


def _validator(raw: _Validator) -> Validator:
    if raw.pub_key.type != KEY_TYPE:
        raise DecodingError(f"a key of type {raw.pub_key.type!r}; known here is {KEY_TYPE}")
    key = read_base64(raw.pub_key.value)
    if bytes.fromhex(raw.address) != validator_address(key):
        raise DecodingError(f"validator {raw.address} has the key of another address")
    return _checked({"key": key, "power": int(raw.voting_power)}, Validator)


def _convert(value: Any, form: type[T]) -> T:
    try:
        return msgspec.convert(value, form)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DecodingError(str(error)) from error


def _checked(fields: dict[str, Any], form: type[T]) -> T:
    """Structs check their bounds only when they are read, so they are made that way."""
    try:
        return msgspec.convert(fields, form, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise DecodingError(str(error)) from error
