"""Finds the error codes in any message."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rookery.errors import ErrorCode
from rookery.wire.message import Message, Type
from rookery.wire.table import shape_of


class CodeField(NamedTuple):
    """A field that is an error code, or contains structures with error codes."""

    name: str
    is_code: bool
    is_array: bool


def error_codes(message: Message) -> list[ErrorCode]:
    """Return the distinct error codes of a message, in the order of their fields."""
    codes: dict[ErrorCode, None] = {}
    _collect(message, codes)
    codes.pop(ErrorCode.NONE, None)
    return list(codes)


def _collect(message: Message, codes: dict[ErrorCode, None]) -> None:
    for field in _fields(type(message)):
        value = getattr(message, field.name)
        if field.is_code:
            codes[value] = None
        elif field.is_array:
            for element in value or ():
                _collect(element, codes)
        elif value is not None:
            _collect(value, codes)


@cache
def _fields(cls: type[Message]) -> tuple[CodeField, ...]:
    fields = []
    for name, entry in cls.__fields__.items():
        shape = shape_of(cls, entry)
        if shape.message is not None and _fields(shape.message):
            fields.append(CodeField(name, is_code=False, is_array=shape.is_array))
        elif shape.wire is Type.ERROR:
            fields.append(CodeField(name, is_code=True, is_array=False))
    return tuple(fields)
