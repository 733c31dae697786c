"""Finds error codes in any response."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from rookery.errors import ErrorCode
from rookery.wire.message import Message
from rookery.wire.table import shape_of


def has_code(message: Message, codes: Collection[ErrorCode]) -> bool:
    """Return whether a response has one of these codes, as a whole or in any of its items."""
    if getattr(message, "error_code", None) in codes:
        return True
    for name in _inner(type(message)):
        value = getattr(message, name)
        if value is None:
            continue
        if any(has_code(each, codes) for each in (value if isinstance(value, list) else (value,))):
            return True
    return False


@cache
def _inner(cls: type[Message]) -> tuple[str, ...]:
    """Return the fields of a class whose structures have a code, or lead to one."""
    shapes = {name: shape_of(cls, entry) for name, entry in cls.__fields__.items()}
    return tuple(
        name
        for name, shape in shapes.items()
        if shape.message is not None
        and ("error_code" in shape.message.__fields__ or _inner(shape.message))
    )
