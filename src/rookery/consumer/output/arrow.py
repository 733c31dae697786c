"""Zero-copy conversion between numpy and Arrow that avoids the imports of `pa.array`."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Sizes: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Array: TypeAlias = "pa.Array[Any]"
"""A column. The alias exists for type checkers, since Arrow's class is not subscriptable."""
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_SMALL: Final = 48 * 1024
_LARGE: Final = 1024 * 1024
_GIANT: Final = 4 * 1024 * 1024

Number = TypeVar("Number", bound=np.dtype[Any])

compute: Final[Any] = pyarrow.compute
"""Arrow's compute functions, untyped: the published stubs miss too many overloads."""


def append_value(numbers: np.ndarray[Any, Number], value: int) -> np.ndarray[Any, Number]:
    """Return the numbers with one value appended; `np.append` takes three times as long."""
    longer = np.empty(len(numbers) + 1, numbers.dtype)
    longer[:-1] = numbers
    longer[-1] = value
    return longer


def fresh(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return uninitialised memory.

    Medium sizes come from Arrow's allocator: it caches freed blocks, whereas the C library returns
    them to the system, which must zero them again. The C library caches smaller blocks as well.
    Very large blocks are mapped from the system and returned to it, because they would fragment the
    heap.
    """
    if _SMALL <= size < _LARGE:
        return np.frombuffer(memoryview(pa.allocate_buffer(size)), np.uint8)
    if size >= _GIANT:
        return np.frombuffer(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS), np.uint8)
    return np.empty(size, np.uint8)


def view(numbers: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of an array."""
    return np.ascontiguousarray(numbers).data


def buffer(numbers: np.ndarray[Any, Any]) -> pa.Buffer:
    """Return an array as an Arrow buffer that keeps the array alive."""
    return pa.py_buffer(view(numbers))


def column(numbers: np.ndarray[Any, Any], kind: pa.DataType, is_null: Flags | None = None) -> Array:
    """Return an array as a column of a type of the same width."""
    nulls = 0 if is_null is None else int(np.count_nonzero(is_null))
    valid = None
    if is_null is not None and nulls:
        valid = buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [valid, buffer(numbers)], nulls)


def take(values: Array, rows: Numbers) -> Array:
    """Return the given rows of a column."""
    return values.take(column(rows.astype(np.int64, copy=False), pa.int64()))


def numbers_of(values: Array) -> Numbers:
    """Return a view of a column of eight-byte numbers; the column must not be a slice."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, np.int64)
    return np.frombuffer(memoryview(data), np.int64, len(values))
