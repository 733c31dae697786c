"""Between numpy and Arrow, without a copy, and without what `pa.array` imports."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Sizes: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Array: TypeAlias = "pa.Array[Any]"
"""A column; the name is for type checkers, since Arrow's own class takes no brackets."""
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

_SMALL: Final = 48 * 1024
_LARGE: Final = 1024 * 1024
_GIANT: Final = 4 * 1024 * 1024

Number = TypeVar("Number", bound=np.dtype[Any])

compute: Final[Any] = pyarrow.compute
"""Arrow's functions; their published types know too few of the cases."""


def appended(numbers: np.ndarray[Any, Number], value: int) -> np.ndarray[Any, Number]:
    """Return numbers and one more; `np.append` takes three times as long."""
    longer = np.empty(len(numbers) + 1, numbers.dtype)
    longer[:-1] = numbers
    longer[-1] = value
    return longer


def fresh(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return memory; what is in it is chance.

    From small to large Arrow's is best: it keeps what was let go for the next, where the C library
    gives it back to the system, which has to clean it. Smaller blocks the C library keeps, too.
    Giants come from the system and go back to it: among other blocks they would leave gaps that
    nothing fits into.
    """
    if _SMALL <= size < _LARGE:
        return np.frombuffer(memoryview(pa.allocate_buffer(size)), np.uint8)
    if size >= _GIANT:
        return np.frombuffer(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS), np.uint8)
    return np.empty(size, np.uint8)


def view(numbers: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of numbers."""
    return np.ascontiguousarray(numbers).data


def buffer(numbers: np.ndarray[Any, Any]) -> pa.Buffer:
    """Return numbers as an Arrow buffer, which keeps them in memory."""
    return pa.py_buffer(view(numbers))


def column(numbers: np.ndarray[Any, Any], kind: pa.DataType, is_null: Flags | None = None) -> Array:
    """Return numbers as a column of a type of the same width."""
    nulls = 0 if is_null is None else int(np.count_nonzero(is_null))
    valid = None
    if is_null is not None and nulls:
        valid = buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [valid, buffer(numbers)], nulls)


def take(values: Array, rows: Numbers) -> Array:
    """Return some rows of a column."""
    return values.take(column(rows.astype(np.int64, copy=False), pa.int64()))


def numbers_of(values: Array) -> Numbers:
    """Return a column of eight-byte numbers as they lie in memory; it must not be a slice."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, np.int64)
    return np.frombuffer(memoryview(data), np.int64, len(values))
