"""Finds the names of one kind in a request, in the fields and lists that its version has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from rookery.wire.message import FieldKind, Message, kind_of
from rookery.wire.neighbour import KindByNeighbour
from rookery.wire.table import shape_of


class NameStep(NamedTuple):
    """One field that holds names, or a list of structures that do."""

    field: str
    is_array: bool
    neighbour: KindByNeighbour | None
    inner: tuple[NameStep, ...]


def names_in(request: Message, version: int, kind: object) -> list[Any]:
    """Return the values of a kind without nulls, in the order of the definition.

    A default of a field that the version does not have is not a name. A structure outside a list,
    such as a cursor, does not ask for anything.
    """
    found: list[Any] = []
    marked = kind_of(kind)
    _collect(request, _steps(type(request), version, marked), marked, found)
    return found


def _collect(
    owner: Message, steps: tuple[NameStep, ...], kind: FieldKind, found: list[Any]
) -> None:
    for step in steps:
        value = getattr(owner, step.field)
        if step.inner:
            for element in value or ():
                _collect(element, step.inner, kind, found)
            continue
        values = (value or ()) if step.is_array else (value,)
        if step.neighbour is not None:
            values = [step.neighbour.read(owner, one, kind) for one in values]
        found.extend(one for one in values if one is not None)


@cache
def _steps(cls: type[Message], version: int, kind: FieldKind) -> tuple[NameStep, ...]:
    return tuple(_find(cls, version, kind))


def _find(cls: type[Message], version: int, kind: FieldKind) -> Iterator[NameStep]:
    for name, entry in cls.__fields__.items():
        if not entry.is_in(version):
            continue
        shape = shape_of(cls, entry)
        if kind in shape.kinds:
            mark = shape.mark if isinstance(shape.mark, KindByNeighbour) else None
            yield NameStep(name, shape.is_array, mark, ())
        elif shape.message is not None and shape.is_array:
            inner = _steps(shape.message, version, kind)
            if inner:
                yield NameStep(name, is_array=True, neighbour=None, inner=inner)
