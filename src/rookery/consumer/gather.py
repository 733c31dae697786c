"""Locates records in batches, and builds Arrow columns from strings anywhere in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.consumer.order.table import Strings, Table, empty
from rookery.consumer.output.arrow import Numbers, Sizes, buffer, fresh, view
from rookery.native import load
from rookery.records.kernel import Buffer

if TYPE_CHECKING:
    from rookery.consumer import _gather
    from rookery.consumer.output.arrow import Array
else:
    _gather = load("rookery.consumer._gather", "rookery.consumer._gather_twin")

# A view stores strings up to this size inline, and the location of longer ones.
_INLINE = 12


def locate(data: Buffer, rows: int, begin: int, until: int, partition: int) -> Table | None:
    """Find the records of batches, at most `rows`; return None if a batch is not plain.

    Args:
        data: whole batches; it must stay alive as long as the result.
        rows: the maximum number of records.
        begin: the first requested offset.
        until: the end offset (exclusive).
        partition: the partition number to store in the rows.
    """
    table = empty(rows)
    count = _gather.locate(data, begin, until, partition, table.data)
    return None if count < 0 else table[:count]


def put(table: Table, column: int, strings: Array) -> None:
    """Record the locations of the strings of a `binary_view` column; it must not be a slice."""
    count = len(strings)
    valid, views, *data = strings.buffers()
    if views is None or not count:
        return
    numbers = np.frombuffer(memoryview(views), np.int32, 4 * count).reshape(count, 4)
    sizes = numbers[:, 0].astype(np.int64)
    is_long = sizes > _INLINE
    addresses = numbers[:, 3].astype(np.int64)
    if len(data) == 1 and data[0] is not None:
        addresses += data[0].address
    elif data:
        owners = np.array([0 if owner is None else owner.address for owner in data], np.int64)
        addresses += owners[np.where(is_long, numbers[:, 2], 0)]
    if not is_long.all():
        inline = views.address + 4 + 16 * np.arange(count, dtype=np.int64)
        addresses = np.where(is_long, addresses, inline)
    if valid is not None:
        bits = np.unpackbits(
            np.frombuffer(memoryview(valid), np.uint8), count=count, bitorder="little"
        )
        sizes[bits == 0] = -1
    table[:, column] = addresses
    table[:, column + 1] = sizes


class RowNumbers(NamedTuple):
    """The numbers of rows as separate columns."""

    offsets: Numbers
    times: Numbers
    orders: Numbers
    partitions: Sizes
    keys: Strings
    values: Strings

    def at(self, rows: Numbers | slice) -> RowNumbers:
        """Return the given rows."""
        offsets, times, orders, partitions, keys, values = self
        return RowNumbers(
            offsets[rows],
            times[rows],
            orders[rows],
            partitions[rows],
            keys.at(rows),
            values.at(rows),
        )


def unpack(lines: Numbers) -> RowNumbers:
    """Copy rows at arbitrary addresses into columns."""
    wide, narrow = 8 * len(lines), 4 * len(lines)
    offsets, times, orders = (fresh(wide).view(np.int64) for _ in range(3))
    partitions = fresh(narrow).view(np.int32)
    keys, values = (
        Strings(fresh(wide).view(np.int64), fresh(narrow).view(np.int32)) for _ in range(2)
    )
    columns = RowNumbers(offsets, times, orders, partitions, keys, values)
    _gather.unpack(view(lines), [numbers.data for numbers in (*columns[:4], *keys, *values)])
    return columns


def binary(strings: Strings) -> Array:
    """Copy strings into a column; their total size must be below 2 GiB."""
    sizes = strings.sizes
    count = len(sizes)
    is_null = sizes < 0
    nulls = int(np.count_nonzero(is_null))
    valid = buffer(np.packbits(~is_null, bitorder="little")) if nulls else None
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0) if nulls else sizes, out=ends[1:])
    out = pa.allocate_buffer(int(ends[-1]))
    _gather.gather(view(strings.addresses), view(sizes), memoryview(out))
    return pa.Array.from_buffers(pa.binary(), count, [valid, buffer(ends), out], nulls)
