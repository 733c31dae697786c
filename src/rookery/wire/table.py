"""Converts a message class to a table: the layout of one version on the wire.

A table is a flat list of steps. Both interpreters, the compiled one (`_codec.pyx`) and its Python
twin (`_twin.py`), run the same tables, so the class is the only place where a layout is stated.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator, Set
from functools import cache
from typing import Final

from rookery.errors import ErrorCode
from rookery.wire.message import BARE_TYPES, ZERO_UUID, Field, FieldKind, Message, Type
from rookery.wire.neighbour import KindByNeighbour

# More tagged fields than this in one structure are an attack on memory, not an extension.
MAX_TAGS: Final = 1024
# The default limit for array elements in a message.
NO_LIMIT: Final = 2**62
# Shorter records are copied between their neighbours, because a separate part costs more.
PART_BYTES: Final = 2048

# The fewest bytes a value can take: what bounds an array's count before it is allocated.
FIXED_SIZES: Final[dict[Type, int]] = {
    Type.BOOL: 1, Type.I8: 1, Type.I16: 2, Type.I32: 4, Type.I64: 8, Type.U16: 2, Type.U32: 4,
    Type.F64: 8, Type.UUID: 16, Type.ERROR: 2,
}  # fmt: skip
_ZEROES: Final[dict[Type, object]] = {
    Type.BOOL: False, Type.F64: 0.0, Type.UUID: ZERO_UUID, Type.ERROR: ErrorCode.NONE,
    Type.STRING: "", Type.BYTES: b"", Type.RECORDS: b"",
}  # fmt: skip


class FieldShape(typing.NamedTuple):
    """The content of an annotation, which holds for all versions."""

    wire: Type
    mark: FieldKind | KindByNeighbour | None
    is_optional: bool
    is_array: bool
    message: type[Message] | None

    @property
    def kinds(self) -> Set[FieldKind]:
        """The kinds that the field can have."""
        if isinstance(self.mark, KindByNeighbour):
            return {*self.mark.kinds.values(), *self.mark.wildcards.values()}
        return set() if self.mark is None else {self.mark}


class FieldStep:
    """How one field is read and written in one version."""

    __slots__ = (
        "compact", "default", "element", "factory", "min_size", "name", "nullable", "table", "tag",
        "type",
    )  # fmt: skip

    def __init__(self, entry: Field, shape: FieldShape, version: int, *, flexible: bool) -> None:
        self.name = entry.name
        self.element = shape.wire if shape.is_array else None
        self.type = Type.ARRAY if shape.is_array else shape.wire
        self.table = None if shape.message is None else table(shape.message, version, flexible)
        self.tag = -1 if entry.tag is None else entry.tag
        self.compact = flexible and entry.compact
        self.nullable = shape.is_optional and version >= (entry.nullable or 0)
        if self.tag >= 0 and self.type is Type.STRUCT and entry.nullable is None:
            # A tagged structure that is None is just not there; it never goes out as a null.
            self.nullable = False
        self.factory = entry.factory
        self.default = entry.factory() if entry.factory else default_of(entry, shape)
        self.min_size = _min_size(self)


class WireTable:
    """One message in one version: its steps, in the order of the wire."""

    __slots__ = (
        "absent", "flexible", "message", "min_size", "program", "steps", "tagged", "version",
    )  # fmt: skip

    def __init__(self, message: type[Message], version: int, *, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.program: object = None
        """The compiled codec's own form of this table, once it has made one."""
        self.steps: list[FieldStep] = []
        self.tagged: dict[int, FieldStep] = {}
        self.absent: list[FieldStep] = []
        """Fields that this version does not have; a reader gives them their default."""
        for entry in message.__fields__.values():
            self._add(entry, FieldStep(entry, shape_of(message, entry), version, flexible=flexible))
        self.tagged = dict(sorted(self.tagged.items()))
        self.min_size = sum(step.min_size for step in self.steps) + flexible

    def _add(self, entry: Field, step: FieldStep) -> None:
        if not entry.is_in(self.version):
            self.absent.append(step)
        elif step.tag < 0:
            self.steps.append(step)
        elif self.flexible:
            self.tagged[step.tag] = step
        else:
            self.absent.append(step)


@cache
def table(message: type[Message], version: int, flexible: bool) -> WireTable:  # noqa: FBT001 (cache key)
    """Return the table of a message or structure; made on first use, then kept."""
    return WireTable(message, version, flexible=flexible)


@cache
def shape_of(message: type[Message], entry: Field) -> FieldShape:
    """Resolve an annotation, which is text, in the module that wrote it."""
    names = vars(sys.modules[message.__module__])
    annotation: object = _resolve(entry.annotation, names)
    is_optional = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        members = [m for m in typing.get_args(annotation) if m is not types.NoneType]
        is_optional, annotation = True, members[0]
    is_array = typing.get_origin(annotation) is list
    if is_array:
        annotation = typing.get_args(annotation)[0]
    return _shape(annotation, is_optional=is_optional, is_array=is_array)


def element_class(message: type[Message], entry: Field) -> type[Message] | None:
    """Return the structure that a field holds, alone or in an array, if it holds one."""
    return shape_of(message, entry).message


def structures(cls: type[Message]) -> Iterator[type[Message]]:
    """Yield a message's class and every structure inside it, outer ones first."""
    yield cls
    for entry in cls.__fields__.values():
        inner = element_class(cls, entry)
        if inner is not None:
            yield from structures(inner)


def default_of(entry: Field, shape: FieldShape) -> object:
    """Return what a field holds in a version that does not have it."""
    if not entry.is_required:
        return entry.default
    if shape.is_optional or shape.is_array or shape.message is not None:
        return None
    return _ZEROES.get(shape.wire, 0)


def _resolve(text: str, names: dict[str, object]) -> object:
    return names[text] if text in names else eval(text, names)  # noqa: S307 (our own annotations)


def _shape(annotation: object, *, is_optional: bool, is_array: bool) -> FieldShape:
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return FieldShape(Type.STRUCT, None, is_optional, is_array, annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        marks = annotation.__metadata__  # type: ignore[attr-defined] # what Annotated keeps
        kind = next((mark for mark in marks if isinstance(mark, FieldKind | KindByNeighbour)), None)
        return FieldShape(marks[0], kind, is_optional, is_array, None)
    if annotation in BARE_TYPES:
        return FieldShape(BARE_TYPES[annotation], None, is_optional, is_array, None)
    raise TypeError(f"{annotation!r} is not a wire type; see the list in rookery.wire.message")


def _min_size(step: FieldStep) -> int:
    if step.type in FIXED_SIZES:
        return FIXED_SIZES[step.type]
    if step.type is Type.STRUCT and not step.nullable:
        return step.table.min_size if step.table else 0
    if step.compact or step.type is Type.STRUCT:
        return 1
    return 2 if step.type is Type.STRING else 4
