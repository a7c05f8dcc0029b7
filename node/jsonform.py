"""JSON form of messages, records and RPC structs, both ways.

Structs are objects with their field names (and ``type`` for messages); byte strings of 20 bytes are `outer1…`
addresses, all others lower-case hex; tuples are arrays. Reading is strict: unknown or missing fields, booleans for
integers and numbers beyond 64 bits are refused with the path of the field.
"""

import math
import reprlib
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from primitives.keys import ADDRESS_BYTES, ADDRESS_PREFIX, KeyFormatError, format_address, parse_address

T = TypeVar("T")
JsonValue = Any
"""None, bool, int, float, str, list or dict with text keys, as the standard library's json knows them."""

TAG_FIELD = "type"


class JsonFormError(ValueError):
    """A JSON value is not the form of the wanted type; the message begins with the path of the field."""


def to_json(value: object) -> JsonValue:
    """The JSON form of `value`: a struct, byte string, text, number, None, or a tuple, list or mapping of those.

    Raises: TypeError for anything else, which is a mistake in the calling code.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return bytes_to_text(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
        tag = value.__struct_config__.tag
        return fields if tag is None else {TAG_FIELD: tag, **fields}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(data: JsonValue, wanted: type[T] | Any, *, path: str = "") -> T:
    """The value of type `wanted` (a struct, a union of messages, a tuple type, …) whose JSON form is `data`.

    Raises: JsonFormError.
    """
    return cast(T, _read(data, wanted, path))


def bytes_to_text(value: bytes) -> str:
    """`outer1…` for 20 bytes, else lower-case hex."""
    return format_address(value) if len(value) == ADDRESS_BYTES else value.hex()


def text_to_bytes(text: str) -> bytes:
    """What `bytes_to_text` made, back to bytes; upper-case hex and a leading ``0x`` are fine too.

    Raises: JsonFormError.
    """
    if text.startswith(f"{ADDRESS_PREFIX}1"):
        try:
            return parse_address(text)
        except KeyFormatError as error:
            raise JsonFormError(str(error)) from error
    if not text.isascii() or any(character.isspace() for character in text):
        raise _not_bytes(text)
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise _not_bytes(text) from error


def _read(data: JsonValue, wanted: Any, path: str) -> object:
    origin = get_origin(wanted)
    if origin is None and isinstance(wanted, type):
        if issubclass(wanted, msgspec.Struct):
            return _read_struct(data, wanted, struct_hints(wanted), path)
        return _read_scalar(data, wanted, path)
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return _read_struct(data, origin, struct_hints(wanted), path)
    if origin in (types.UnionType, Union):
        return _read_union(data, get_args(wanted), path)
    if origin is Literal:
        allowed = get_args(wanted)
        if not isinstance(data, str) or data not in allowed:
            raise _wrong(path, data, "one of " + ", ".join(map(str, allowed)))
        return data
    if origin in (tuple, list):
        return _read_sequence(data, origin, get_args(wanted), path)
    if origin is dict:
        if not isinstance(data, dict):
            raise _wrong(path, data, "an object")
        return {key: _read(item, get_args(wanted)[1], _join(path, str(key))) for key, item in data.items()}
    if wanted is Any:
        return data
    raise TypeError(f"{wanted!r} has no JSON form")


def _read_scalar(data: JsonValue, wanted: type, path: str) -> object:
    if wanted is bytes and isinstance(data, str):
        try:
            return text_to_bytes(data)
        except JsonFormError as error:
            raise JsonFormError(f"{path or 'value'}: {error}") from error
    if wanted is int and type(data) is int:
        if not -(2**63) <= data < 2**64:
            raise JsonFormError(f"{path or 'value'} does not fit 64 bits")
        return data
    if wanted is float and type(data) in (int, float):
        try:
            number = float(data)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise _wrong(path, data, "a finite number")
        return number
    if wanted is str and isinstance(data, str):
        if not data.isascii() and data.encode("utf-8", "ignore").decode() != data:
            raise JsonFormError(f"{path or 'value'} is not Unicode text")
        return data
    if wanted is bool and type(data) is bool:
        return data
    if wanted is types.NoneType and data is None:
        return None
    raise _wrong(path, data, _EXPECTED.get(wanted, wanted.__name__))


_EXPECTED: dict[type, str] = {
    bytes: f"text of hex digits or an {ADDRESS_PREFIX}1… address",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}


def _read_struct(data: JsonValue, wanted: type[msgspec.Struct], hints: dict[str, Any], path: str) -> msgspec.Struct:
    if not isinstance(data, dict):
        raise _wrong(path, data, f"an object with the fields of {wanted.__name__}")
    tag = wanted.__struct_config__.tag
    if tag is not None:
        if data.get(TAG_FIELD) != tag:
            raise _wrong(_join(path, TAG_FIELD), data.get(TAG_FIELD), repr(tag))
        data = {key: item for key, item in data.items() if key != TAG_FIELD}
    unknown = sorted(str(key) for key in data if key not in hints)
    if unknown:
        raise JsonFormError(f"{_join(path, unknown[0])[:80]} is not a field of {wanted.__name__}")
    for field in msgspec.structs.fields(wanted):
        if field.required and field.name not in data:
            raise JsonFormError(f"{_join(path, field.name)} is missing")
    values = {name: _read(item, hints[name], _join(path, name)) for name, item in data.items()}
    try:
        return wanted(**values)
    except ValueError as error:
        raise JsonFormError(f"{path}: {error}" if path else str(error)) from error


def _read_union(data: JsonValue, options: tuple[Any, ...], path: str) -> object:
    if data is None and types.NoneType in options:
        return None
    rest = [option for option in options if option is not types.NoneType]
    if len(rest) == 1:
        return _read(data, rest[0], path)
    tags = {option.__struct_config__.tag: option for option in rest}
    tag = data.get(TAG_FIELD) if isinstance(data, dict) else None
    if not isinstance(tag, str) or tag not in tags:
        raise _wrong(_join(path, TAG_FIELD), tag, "one of " + ", ".join(sorted(map(str, tags))))
    return _read_struct(data, tags[tag], struct_hints(tags[tag]), path)


def _read_sequence(data: JsonValue, origin: type, items: tuple[Any, ...], path: str) -> object:
    if not isinstance(data, list):
        raise _wrong(path, data, "an array")
    if origin is list or (len(items) == 2 and items[1] is Ellipsis):
        wanted = [items[0]] * len(data)
    elif len(items) == len(data):
        wanted = list(items)
    else:
        raise _wrong(path, data, f"an array of {len(items)}")
    values = [_read(item, kind, f"{path}[{i}]") for i, (item, kind) in enumerate(zip(data, wanted, strict=True))]
    return values if origin is list else tuple(values)


@cache
def struct_hints(wanted: Any) -> dict[str, Any]:
    """Field name to its type, of a struct or of a generic one with its parameter (`Page[Job]`)."""
    origin = get_origin(wanted) or wanted
    hints = get_type_hints(origin)
    return {name: _bound(hints[name], get_args(wanted)) for name in origin.__struct_fields__}


def _bound(hint: Any, arguments: tuple[Any, ...]) -> Any:
    if isinstance(hint, TypeVar):
        return arguments[0]
    return hint[arguments] if arguments and getattr(hint, "__parameters__", ()) else hint


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _not_bytes(text: str) -> JsonFormError:
    return JsonFormError(f"{reprlib.repr(text)} should be hex digits or an {ADDRESS_PREFIX}1… address")


def _wrong(path: str, data: JsonValue, expected: str) -> JsonFormError:
    return JsonFormError(f"{path or 'value'} is {reprlib.repr(data)}; it should be {expected}")
