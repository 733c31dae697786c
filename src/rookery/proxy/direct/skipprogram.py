"""Steps that skip the fields of a response up to its tagged fields, without decoding them.

A program is a flat sequence of words: of each step its operation, its operand and whether null is
allowed. The steps of an array's elements follow it; its operand is where they end.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Final

from rookery.wire.message import Message, Type
from rookery.wire.table import FIXED_SIZES, FieldStep, WireTable, table

STEP_WORDS: Final = 3


class SkipOperation(IntEnum):
    """The kind of field that a step skips."""

    FIXED = 0
    """A number of bytes, given by the operand."""
    COMPACT_BYTES = 1
    """Bytes after a number of variable length, which is their length and one."""
    SHORT_BYTES = 2
    """Bytes after a length of two bytes."""
    LONG_BYTES = 3
    """Bytes after a length of four bytes."""
    TAGS = 4
    """Tagged fields, known or not."""
    COMPACT_ARRAY = 5
    LONG_ARRAY = 6


@cache
def skip_program(message: type[Message], version: int) -> tuple[int, ...] | None:
    """Return the steps to the tagged fields at the end; None if a field cannot be skipped."""
    program: list[int] = []
    try:
        _add_fields(program, table(message, version, True))  # noqa: FBT003 (cache key)
    except ValueError:
        return None
    return tuple(program)


def _add_fields(program: list[int], wire: WireTable) -> None:
    for step in wire.steps:
        _add(program, step)


def _add_structure(program: list[int], wire: WireTable) -> None:
    _add_fields(program, wire)
    if wire.flexible:
        program += (SkipOperation.TAGS, 0, 0)


def _add(program: list[int], step: FieldStep) -> None:
    if step.type is Type.ARRAY:
        operation = SkipOperation.COMPACT_ARRAY if step.compact else SkipOperation.LONG_ARRAY
        program += (operation, 0, step.nullable)
        place = len(program)
        _add_element(program, step)
        program[place - STEP_WORDS + 1] = len(program)
    elif step.type is Type.STRUCT and step.nullable:
        raise ValueError(f"{step.name}: a structure that may be null")
    else:
        _add_value(program, step.type, step)


def _add_element(program: list[int], step: FieldStep) -> None:
    if step.table is not None:
        _add_structure(program, step.table)
    elif step.element is not None:
        _add_value(program, step.element, step, is_nullable=False)


def _add_value(
    program: list[int], kind: Type, step: FieldStep, *, is_nullable: bool | None = None
) -> None:
    is_null = step.nullable if is_nullable is None else is_nullable
    if kind in FIXED_SIZES:
        program += (SkipOperation.FIXED, FIXED_SIZES[kind], 0)
    elif kind is Type.STRUCT:
        assert step.table is not None  # noqa: S101 (every structure has one)
        _add_structure(program, step.table)
    elif kind in (Type.STRING, Type.BYTES, Type.RECORDS):
        operation = SkipOperation.SHORT_BYTES if kind is Type.STRING else SkipOperation.LONG_BYTES
        program += (SkipOperation.COMPACT_BYTES if step.compact else operation, 0, is_null)
    else:
        raise ValueError(f"{step.name}: a value of the type {kind}")
