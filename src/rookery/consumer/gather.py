"""Byte strings that lie anywhere in memory, and Arrow columns made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.consumer.arrow import Numbers, Sizes, buffer, view
from rookery.native import load
from rookery.records.kernel import Buffer

if TYPE_CHECKING:
    from rookery.consumer import _gather
    from rookery.decode.port import Array
else:
    _gather = load("rookery.consumer._gather", "rookery.consumer._gather_twin")

# A view holds strings up to this size itself, and of longer ones where they lie.
_INLINE = 12


class Strings(NamedTuple):
    """Where byte strings lie; whoever holds this must hold their owner, too."""

    addresses: Numbers
    sizes: Sizes
    """Below zero where there is none."""

    def at(self, rows: Numbers | slice) -> Strings:
        """Return some of them."""
        return Strings(self.addresses[rows], self.sizes[rows])


def strings_of(column: Array) -> Strings:
    """Return where the strings of a `binary_view` column lie; it must not be a slice."""
    count = len(column)
    valid, views, *data = column.buffers()
    if views is None or not count:
        return Strings(np.empty(0, np.int64), np.empty(0, np.int32))
    numbers = np.frombuffer(memoryview(views), np.int32, 4 * count).reshape(count, 4)
    sizes = numbers[:, 0].copy()
    is_long = sizes > _INLINE
    addresses = numbers[:, 3].astype(np.int64)
    if len(data) == 1 and data[0] is not None:
        addresses += data[0].address
    elif data:
        owners = np.array([0 if one is None else one.address for one in data], np.int64)
        addresses += owners[np.where(is_long, numbers[:, 2], 0)]
    if not is_long.all():
        inline = views.address + 4 + 16 * np.arange(count, dtype=np.int64)
        addresses = np.where(is_long, addresses, inline)
    if valid is not None:
        bits = np.unpackbits(
            np.frombuffer(memoryview(valid), np.uint8), count=count, bitorder="little"
        )
        sizes[bits == 0] = -1
    return Strings(addresses, sizes)


class Located(NamedTuple):
    """Where the records of plain batches lie."""

    offsets: Numbers
    times: Numbers
    keys: Strings
    values: Strings


def locate(data: Buffer, rows: int, begin: int, until: int) -> Located | None:
    """Find the records of batches, `rows` at most; None if they are not plain.

    Args:
        data: whole batches; whoever holds the result must hold it, too.
        rows: how many records they have at most.
        begin: the first offset wanted.
        until: the offset before which records are wanted.
    """
    offsets, times = np.empty(rows, np.int64), np.empty(rows, np.int64)
    keys = Strings(np.empty(rows, np.int64), np.empty(rows, np.int32))
    values = Strings(np.empty(rows, np.int64), np.empty(rows, np.int32))
    columns = [one.data for one in (offsets, times, *keys, *values)]
    count = _gather.locate(data, begin, until, columns)
    if count < 0:
        return None
    if count == rows:
        return Located(offsets, times, keys, values)
    return Located(offsets[:count], times[:count], keys.at(slice(count)), values.at(slice(count)))


def joined(many: list[Strings]) -> Strings:
    """Return strings one after the other."""
    if len(many) == 1:
        return many[0]
    return Strings(
        np.concatenate([one.addresses for one in many]), np.concatenate([one.sizes for one in many])
    )


def binary(strings: Strings) -> Array:
    """Copy strings into a column; together they must be below 2 GiB."""
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
