"""`wire.walk` without compilation: an oracle that resolves the kind of every field as it goes.

`change` is called for every value here, so a comparison of the two needs a pure function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rookery.wire.message import FieldKind, Message
from rookery.wire.neighbour import WILDCARD, KindByNeighbour
from rookery.wire.table import FieldShape, shape_of


def visit(message: Message, kind: FieldKind) -> Iterator[Any]:
    for name, entry in message.__fields__.items():
        shape, value = shape_of(type(message), entry), getattr(message, name)
        for item in items(value, shape):
            if shape.message is not None:
                yield from visit(item, kind)
            elif resolve(message, shape, item) == kind:
                number = as_number(shape, kind, item)
                if number is not None:
                    yield number


def rewrite(message: Message, kind: FieldKind, change: Callable[[Any], Any]) -> None:
    for name, entry in message.__fields__.items():
        shape, value = shape_of(type(message), entry), getattr(message, name)
        if value is None:
            continue
        if shape.message is not None:
            for item in items(value, shape):
                rewrite(item, kind, change)
            continue
        changed = [_changed(message, shape, kind, item, change) for item in items(value, shape)]
        setattr(message, name, changed if shape.is_array else changed[0])


def _changed(
    message: Message, shape: FieldShape, kind: FieldKind, value: Any, change: Callable[[Any], Any]
) -> Any:
    number = as_number(shape, kind, value)
    if resolve(message, shape, value) != kind or number is None:
        return value
    return change(number) if number is value else str(change(number))


def items(value: Any, shape: FieldShape) -> list[Any]:
    if value is None:
        return []
    return list(value) if shape.is_array else [value]


def resolve(message: Message, shape: FieldShape, value: Any) -> FieldKind | None:
    """Return the kind that a value has where it stands."""
    mark = shape.mark
    if not isinstance(mark, KindByNeighbour):
        return mark
    near = tuple(getattr(message, neighbour) for neighbour in mark.neighbours)
    known = mark.wildcards if mark.wildcards and value == WILDCARD else mark.kinds
    return known.get(near)


def as_number(shape: FieldShape, kind: FieldKind, value: Any) -> Any:
    """Return a number for text that holds one of a numeric kind; None if it holds none."""
    mark = shape.mark
    if not isinstance(mark, KindByNeighbour) or kind not in mark.decimal:
        return value
    return int(value) if value.isascii() and value.isdecimal() else None
