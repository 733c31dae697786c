"""Remove elements from the lists of any message, by the value of a field of one kind.

    drop_elements(response, TopicName, lambda name: not name.startswith("orders."))

An element is a structure that has a field of the kind itself, or a plain value of the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from rookery.wire.message import FieldKind, Message, kind_of
from rookery.wire.table import shape_of
from rookery.wire.walk import has_kind


class ElementList(NamedTuple):
    """A field that is a list, or leads to one."""

    name: str
    is_array: bool
    key: str | None
    """The field of an element that has the kind; None if elements have it deeper, or not at all."""
    is_plain: bool
    """Whether the elements are values of the kind themselves."""


def drop_elements(message: Message, kind: object, is_dropped: Callable[[Any], bool]) -> None:
    """Remove the elements whose value of `kind` is to be dropped, in place; nulls stay."""
    wanted = kind_of(kind)
    for part in _lists(type(message), wanted):
        value = getattr(message, part.name)
        if value is None:
            continue
        if not part.is_array:
            drop_elements(value, kind, is_dropped)
            continue
        kept = [each for each in value if not _is_dropped(each, part, is_dropped)]
        setattr(message, part.name, kept)
        if not part.is_plain:
            for each in kept:
                drop_elements(each, kind, is_dropped)


def _is_dropped(element: Any, part: ElementList, is_dropped: Callable[[Any], bool]) -> bool:
    if part.is_plain:
        return is_dropped(element)
    value = getattr(element, part.key) if part.key is not None else None
    return value is not None and is_dropped(value)


@cache
def _lists(cls: type[Message], kind: FieldKind) -> tuple[ElementList, ...]:
    """Return the fields of a class that hold elements of the kind, or lead to such fields."""
    lists = []
    for name, entry in cls.__fields__.items():
        shape = shape_of(cls, entry)
        if shape.message is not None and has_kind(shape.message, kind):
            key = field_of(shape.message, kind) if shape.is_array else None
            lists.append(ElementList(name, shape.is_array, key, is_plain=False))
        elif shape.is_array and shape.mark == kind:
            lists.append(ElementList(name, is_array=True, key=None, is_plain=True))
    return tuple(lists)


@cache
def field_of(cls: type[Message], kind: FieldKind) -> str | None:
    """Return the name of the field with a kind that is not a list, or None."""
    for name, entry in cls.__fields__.items():
        shape = shape_of(cls, entry)
        if shape.mark == kind and not shape.is_array:
            return name
    return None
