"""The meaning of the numbers that the Avro kernel (`_avro.pyx`) takes and returns."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Op(IntEnum):
    """The type of value that a node reads."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    ARRAY = 9
    RECORD = 10
    UNION = 11
    MEMBER = 12
    CONSTANT = 13
    FAIL = 14


class AvroKind(IntEnum):
    """The type of data that a builder holds."""

    NULL = 0
    BOOLEAN = 1
    INT32 = 2
    INT64 = 3
    FLOAT32 = 4
    FLOAT64 = 5
    BINARY = 6
    TEXT = 7
    FIXED = 8
    DECIMAL = 9
    LIST = 10
    STRUCT = 11


FAULTS: Final = (
    "",
    "the value ends too early",
    "a number is longer than it may be",
    "a length is negative or longer than the value",
    "a union's branch does not exist",
    "an enum's symbol is not known",
    "a boolean is neither 0 nor 1",
    "a string is not UTF-8",
    "a number does not fit its column",
    "an array has more items than the value has bytes",
    "nested too deeply",
    "the column would exceed 2 GiB",
    "the writer's schema does not fit the reader's",
    "bytes are left over at its end",
)
"""The meaning of the fault numbers."""
