"""Visit or rewrite every field of one kind in any message, whatever its API and version.

A kind is the mark on a field's type (`TopicName`, `BrokerId`, …). The way to the fields of a kind
is worked out once for each class, so a message without such a field costs one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

from rookery.wire.message import Kind, Message
from rookery.wire.table import shape_of

M = TypeVar("M", bound=Message)


class _Turn(NamedTuple):
    """One field on the way: it is of the kind itself, or a structure that leads to one."""

    name: str
    is_array: bool
    inner: type[Message] | None


def visit(message: Message, kind: object) -> Iterator[Any]:
    """Yield the value of every field of `kind`, in the order of the definition, without nulls."""
    wanted = kind_of(kind)
    for turn in _way(type(message), wanted):
        value = getattr(message, turn.name)
        if value is None:
            continue
        for item in value if turn.is_array else (value,):
            if turn.inner is None:
                yield item
            else:
                yield from visit(item, kind)


def rewrite(message: M, kind: object, change: Callable[[Any], Any]) -> M:
    """Replace every value of `kind` by `change(value)`, in place; return the message."""
    _rewrite(message, kind_of(kind), change)
    return message


def has_kind(cls: type[Message], kind: object) -> bool:
    """Whether a message of this class can hold a field of `kind`."""
    return bool(_way(cls, kind_of(kind)))


def kind_of(mark: object) -> Kind:
    """Return the kind that an annotation such as `TopicName` carries."""
    for entry in getattr(mark, "__metadata__", ()):
        if isinstance(entry, Kind):
            return entry
    raise TypeError(f"{mark!r} marks no kind; see the list in rookery.wire.message")


def _rewrite(message: Message, kind: Kind, change: Callable[[Any], Any]) -> None:
    for name, is_array, inner in _way(type(message), kind):
        value = getattr(message, name)
        if value is None:
            continue
        if inner is None:
            setattr(message, name, [change(item) for item in value] if is_array else change(value))
        else:
            for item in value if is_array else (value,):
                _rewrite(item, kind, change)


@cache
def _way(cls: type[Message], kind: Kind) -> tuple[_Turn, ...]:
    turns = []
    for entry in cls.__fields__.values():
        shape = shape_of(cls, entry)
        leads = shape.kind == kind if shape.message is None else bool(_way(shape.message, kind))
        if leads:
            turns.append(_Turn(entry.name, shape.is_array, shape.message))
    return tuple(turns)
