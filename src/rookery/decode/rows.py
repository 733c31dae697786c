"""Helpers for rows of a binary column: bisection to find bad rows, and joining of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from rookery.decode.port import Array, BadRow, DecodeResult, bad_row

compute: Any = pyarrow.compute
"""Arrow's functions; the stubs lack some of their overloads."""

_LEAF: Final = 64
"""Blocks of at most this many rows are not halved further but decoded row by row."""

Block = Callable[[Array], "Array | int | None"]
"""Decodes all rows of a column without nulls, or none; it can return the failing row."""

Singly = Callable[[list[bytes]], DecodeResult]
"""Decodes rows one by one, for their reasons."""

Part = tuple[Array, Array]
"""Row numbers, and the value of each."""


def as_binary(column: Array) -> Array:
    """Return the column as `binary`; other types are cast."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def nulls(length: int, kind: pa.DataType) -> Array:
    """Make a column of nulls."""
    # Cast to `Any`: the stubs accept only specific types.
    arrow: Any = pa
    column: Array = arrow.nulls(length, kind)
    return column


def to_list(column: Array) -> list[Any]:
    """Return the values of a column; without nulls, there is no None among them."""
    return list(column.to_pylist())


def without_head(column: Array, size: int) -> Array:
    """Remove the first bytes of every row."""
    # `binary_slice` is not used: it allocates the widest possible row for every row.
    rest: Array = compute.binary_replace_slice(column, 0, size, b"")
    return rest


def decode_present(
    column: Array, kind: pa.DataType, decode: Callable[[Array], DecodeResult]
) -> DecodeResult:
    """Decode the values that are not null, and put the nulls back."""
    column = as_binary(column)
    if column.null_count == 0:
        return decode(column)
    rows = compute.indices_nonzero(column.is_valid())
    part = decode(column.drop_null())
    return DecodeResult(
        spread([(rows, part.values)], len(column), kind), tuple(map_rows(part.bad, rows))
    )


def map_rows(bad: Iterable[BadRow], rows: Array) -> list[BadRow]:
    """Map bad rows of a part to their row numbers in the whole."""
    return [BadRow(rows[reject.row].as_py(), reject.reason, reject.schema_id) for reject in bad]


def spread(parts: list[Part], length: int, kind: pa.DataType) -> Array:
    """Place the values of each part at its rows of a column; all other rows are null."""
    if not length or not any(len(rows) for rows, _ in parts):
        return nulls(length, kind)
    rows = pa.concat_arrays([rows for rows, _ in parts]).cast(pa.int64())
    values = pa.concat_arrays([values for _, values in parts])
    result: Array = values.take(compute.inverse_permutation(rows, max_index=length - 1))
    return result


def halve(column: Array, kind: pa.DataType, block: Block, singly: Singly) -> DecodeResult:
    """Decode a column block-wise; halve blocks that fail until the bad rows are found.

    So one bad record costs a few more calls, not a slow path for all its neighbours.
    """
    parts: list[Array] = []
    bad: list[BadRow] = []
    waiting = [(0, len(column))] if len(column) else []
    while waiting:
        begin, end = waiting.pop()
        piece = column.slice(begin, end - begin)
        values = block(piece) if end - begin > 1 else None
        if values is not None and not isinstance(values, int):
            parts.append(values)
        elif end - begin <= _LEAF:
            result = singly(to_list(piece))
            bad += [BadRow(begin + reject.row, reject.reason) for reject in result.bad]
            parts.append(result.values)
        elif values is None:
            middle = (begin + end) // 2
            waiting += [(middle, end), (begin, middle)]
        else:
            waiting += reversed(_around(begin, begin + min(values, end - begin - 1), end))
    return DecodeResult(pa.concat_arrays(parts) if parts else nulls(0, kind), tuple(bad))


def _around(begin: int, row: int, end: int) -> list[tuple[int, int]]:
    """Cut a block at the failing row: the rows before it, the row itself, and the rest.

    Bad rows often come in groups, so the rest is cut into small blocks first, and larger ones
    later. With the whole rest each time, the cost would be quadratic in the number of bad rows.
    """
    pieces = [(begin, row), (row, row + 1)] if row > begin else [(row, row + 1)]
    at, size = row + 1, max(_LEAF, 2 * (row - begin))
    while at < end:
        pieces.append((at, min(at + size, end)))
        at, size = at + size, 2 * size
    return pieces


def one_by_one(kind: pa.DataType, decode: Callable[[bytes], Array | str]) -> Singly:
    """Create a `Singly` from a function that decodes one row to a column of one, or a reason."""

    def singly(rows: list[bytes]) -> DecodeResult:
        parts: list[Array] = []
        bad: list[BadRow] = []
        for row, data in enumerate(rows):
            values = decode(data)
            if isinstance(values, str):
                bad.append(bad_row(row, values))
                values = nulls(1, kind)
            parts.append(values)
        return DecodeResult(pa.concat_arrays(parts) if parts else nulls(0, kind), tuple(bad))

    return singly
