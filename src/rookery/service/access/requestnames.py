"""Finds the names of one kind in a request, in the fields and lists that its version has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from rookery.wire.message import FieldKind, Message, kind_of
from rookery.wire.neighbour import KindByNeighbour
from rookery.wire.table import shape_of

NamesReader = Callable[[Any], Sequence[Any]]
"""Returns the names in a request of one version; nulls may be among them."""


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
    names: list[Any] = []
    marked = kind_of(kind)
    _collect(request, _steps(type(request), version, marked), marked, names)
    return names


def names_reader(request: type[Message], version: int, kind: object) -> NamesReader | None:
    """Return what reads the same names faster; None if requests of a version have none."""
    steps = _steps(request, version, kind_of(kind))
    if not steps:
        return None
    if len(steps) == 1:
        [step] = steps
        if _is_plain(step):
            return partial(_read_field, step.field)
        if len(step.inner) == 1 and _is_plain(step.inner[0]):
            return partial(_read_list, step.field, step.inner[0].field)
    return partial(names_in, version=version, kind=kind)


def _is_plain(step: NameStep) -> bool:
    return not step.inner and not step.is_array and step.neighbour is None


def _read_field(field: str, request: Message) -> tuple[Any]:
    return (getattr(request, field),)


def _read_list(field: str, inner: str, request: Message) -> list[Any]:
    return [getattr(element, inner) for element in getattr(request, field) or ()]


def _collect(
    owner: Message, steps: tuple[NameStep, ...], kind: FieldKind, names: list[Any]
) -> None:
    for step in steps:
        value = getattr(owner, step.field)
        if step.inner:
            for element in value or ():
                _collect(element, step.inner, kind, names)
            continue
        values = (value or ()) if step.is_array else (value,)
        if step.neighbour is not None:
            values = [step.neighbour.read(owner, name, kind) for name in values]
        names.extend(name for name in values if name is not None)


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
