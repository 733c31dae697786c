"""Decoded rows that wait to be released: eight numbers each, one cache line.

    table of a block: rows in offset order ──► lines: addresses of rows, in key order
                                                            │
                                            columns, when they are returned

Ordering the rows of many partitions moves one number per row. A row is touched once more, when it
is returned. Keys and values stay where they were fetched; a row contains their addresses.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rookery.consumer.output.arrow import Numbers, Sizes, fresh

Table: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Rows of eight numbers; the owner of the keys and values must stay alive as long."""

OFFSET: Final = 0
TIME: Final = 1
"""The record's timestamp in milliseconds; NO_TIME where there is none."""
ORDER: Final = 2
"""The key by which rows are ordered."""
PARTITION: Final = 3
"""The partition's number in the merge."""
KEY: Final = 4
"""The address of the key; its size follows and is negative if there is no key."""
VALUE: Final = 6
"""The address of the value, likewise."""
WIDTH: Final = 8
ROW_BYTES: Final = 8 * WIDTH


class Strings(NamedTuple):
    """The addresses of byte strings; their owner must stay alive as long."""

    addresses: Numbers
    sizes: Sizes
    """Negative where there is none."""

    def at(self, rows: Numbers | slice) -> Strings:
        """Return the given strings."""
        return Strings(self.addresses[rows], self.sizes[rows])


def empty(rows: int) -> Table:
    """Return uninitialised memory for the given number of rows."""
    return fresh(rows * ROW_BYTES).view(np.int64).reshape(rows, WIDTH)


def lines(table: Table, begin: int = 0, end: int | None = None) -> Numbers:
    """Return the addresses of all rows, or of those in a range."""
    first = table.ctypes.data
    stop = len(table) if end is None else end
    return np.arange(first + ROW_BYTES * begin, first + ROW_BYTES * stop, ROW_BYTES, dtype=np.int64)


def hide(table: Table, column: int) -> None:
    """Mark the keys or the values as absent."""
    table[:, column + 1] = -1


def strings(table: Table, column: int) -> Strings:
    """Return the addresses of the keys or the values."""
    return Strings(table[:, column].copy(), table[:, column + 1].astype(np.int32))
