"""Turns arbitrary bytes into choices, numbers and messages, so that a mutated input is a mutated scenario."""

import types
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from abci_app import messages as m
from abci_app.forms import FORMS
from tests.abci_app.rules.chain import address

T = TypeVar("T")
MESSAGES: Final[tuple[type[m.Message], ...]] = tuple(sorted(FORMS, key=lambda kind: kind.__name__))
NUMBERS: Final = (0, 1, 2, 10**6, 10**15, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63))
BYTES: Final = (address("alice"), address("w0"), address("v0"), b"", bytes(20), bytes(32), bytes(33), bytes(64))
TEXTS: Final = ("", "hot", "temporary", "isal", "rs8", "job/1/round/0", "http://127.0.0.1:80", "\x00", "x" * 300)
MAX_ITEMS: Final = 4


class Reader:
    """Reads one input from front to back; past its end everything is zero."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def exhausted(self) -> bool:
        return self._position >= len(self._data)

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def take(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end."""
        found = self._data[self._position : self._position + count]
        self._position += count
        return found

    def byte(self) -> int:
        return int.from_bytes(self.take(1), "big")

    def number(self) -> int:
        """Small, at a border of some type, or any of eight bytes."""
        kind = self.byte()
        if kind < 128:
            return kind % 16
        return NUMBERS[kind % len(NUMBERS)] if kind < 250 else int.from_bytes(self.take(8), "big", signed=True)

    def binary(self) -> bytes:
        """A name of somebody, a usual length, or what stands there."""
        kind = self.byte()
        return BYTES[kind % len(BYTES)] if kind < 200 else self.take(kind - 200)

    def text(self) -> str:
        kind = self.byte()
        return TEXTS[kind % len(TEXTS)] if kind < 220 else self.take(kind - 220).decode(errors="replace")

    def choose(self, options: Sequence[T]) -> T:
        return options[self.byte() % len(options)]

    def message(self) -> m.Message:
        """A message of any kind with fields of the right types and arbitrary values."""
        return self._struct(self.choose(MESSAGES))

    def _struct(self, kind: type[T]) -> T:
        hints = get_type_hints(kind)
        return kind(**{item.name: self._value(hints[item.name]) for item in msgspec.structs.fields(kind)})  # type: ignore[type-var,arg-type]

    def _value(self, wanted: Any) -> Any:
        origin, arguments = get_origin(wanted), get_args(wanted)
        if origin is tuple:
            if arguments[-1] is Ellipsis:
                return tuple(self._value(arguments[0]) for _ in range(self.byte() % MAX_ITEMS))
            return tuple(self._value(argument) for argument in arguments)
        if origin in (Union, types.UnionType):
            return self._value(self.choose(arguments))
        if origin is Literal:
            return self.choose(arguments)
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            return self._struct(wanted)
        by_type = {int: self.number, bytes: self.binary, str: self.text, bool: lambda: bool(self.byte() & 1)}
        return None if wanted is type(None) else by_type[wanted]()
