"""Decoded rows while they wait for their turn: eight numbers each, one line of a processor's cache.

    table of a block: rows in the order of offsets ──► lines: where rows lie, in the order of keys
                                                            │
                                            columns, when they are handed out

Rows of many partitions are put in order by moving one number of each, and are touched once more,
when they go. Keys and values stay where they came; a row says where they lie.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rookery.consumer.output.arrow import Numbers, Sizes, fresh

Table: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Rows of eight numbers; whoever holds it must hold the owner of keys and values, too."""

OFFSET: Final = 0
TIME: Final = 1
"""The record's own, in milliseconds; NO_TIME where there is none."""
ORDER: Final = 2
"""The key by which rows are ordered."""
PARTITION: Final = 3
"""The partition's number in the merge."""
KEY: Final = 4
"""Where the key lies; its size comes behind: below zero, there is none."""
VALUE: Final = 6
"""Where the value lies, likewise."""
WIDTH: Final = 8
ROW_BYTES: Final = 8 * WIDTH


class Strings(NamedTuple):
    """Where byte strings lie; whoever holds this must hold their owner, too."""

    addresses: Numbers
    sizes: Sizes
    """Below zero where there is none."""

    def at(self, rows: Numbers | slice) -> Strings:
        """Return some of them."""
        return Strings(self.addresses[rows], self.sizes[rows])


def empty(rows: int) -> Table:
    """Return memory for so many rows; what is in it is chance."""
    return fresh(rows * ROW_BYTES).view(np.int64).reshape(rows, WIDTH)


def lines(table: Table, begin: int = 0, end: int | None = None) -> Numbers:
    """Return where rows lie: all, or those of a range."""
    first = table.ctypes.data
    stop = len(table) if end is None else end
    return np.arange(first + ROW_BYTES * begin, first + ROW_BYTES * stop, ROW_BYTES, dtype=np.int64)


def hide(table: Table, column: int) -> None:
    """Leave out the keys or the values."""
    table[:, column + 1] = -1


def strings(table: Table, column: int) -> Strings:
    """Return where the keys or the values lie."""
    return Strings(table[:, column].copy(), table[:, column + 1].astype(np.int32))
