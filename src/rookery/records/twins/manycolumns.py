"""Decodes all records of a batch together with numpy, for the decoder in plain Python.

It handles only regular batches. If it returns None, the caller reads record by record and finds the
fault. Numbers are gathered column by column; byte columns are copied by Arrow.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rookery.records.batches import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader
from rookery.records.reading import PartitionBatches

Integers: TypeAlias = NDArray[np.int64]

_MORE: Final = 0x80
# The width of numbers in bits. A 64-bit number with a tenth byte is left to the record-by-record
# path.
_INT: Final = 32
_LONG: Final = 63
_FIVE_BYTES: Final = 5 * 7  # the maximum number of bits of a length
_PADDING: Final = 10
_INT64_MAX: Final = 2**63 - 1
_LARGE: Final = 2**31
"""From this size on, Arrow needs other column types."""


class Pieces(NamedTuple):
    """The positions of one column's byte strings; a length of -1 means none."""

    starts: Integers
    sizes: Integers

    def take(self, mask: NDArray[np.bool_]) -> Pieces:
        """Return some of them."""
        return Pieces(self.starts[mask], self.sizes[mask])

    @property
    def size(self) -> int:
        """The total number of bytes."""
        return int(np.maximum(self.sizes, 0).sum())


class Many(NamedTuple):
    """The records of a batch as columns, none of them with headers."""

    offset_deltas: Integers
    time_deltas: Integers
    keys: Pieces
    values: Pieces

    def take(self, mask: NDArray[np.bool_]) -> Many:
        """Return some of them."""
        return Many(
            self.offset_deltas[mask], self.time_deltas[mask],
            self.keys.take(mask), self.values.take(mask),
        )  # fmt: skip


def read(data: bytes, count: int) -> Many | None:
    """Read the given number of records, which must fill the data; None if they do not."""
    starts = _starts(data, count) if len(data) < _LARGE else None
    if starts is None:
        return None
    ends = np.append(starts[1:, 0], len(data))
    # Each field starts at the end of the previous one: if any is wrong, the last one ends too late.
    padded = np.concatenate([np.frombuffer(data, np.uint8), np.zeros(_PADDING, np.uint8)])
    at = starts[:, 1] + 1  # after the attributes
    time_deltas, at = _numbers(padded, at, _LONG)
    offset_deltas, at = _numbers(padded, at, _INT)
    keys, at = _pieces(padded, at)
    values, at = _pieces(padded, at)
    headers, at = _numbers(padded, at, _INT)
    is_plain = not headers.any() and np.array_equal(at, ends)
    return Many(offset_deltas, time_deltas, keys, values) if is_plain else None


class ColumnBuilder:
    """Builds columns from the records that are in range."""

    def __init__(
        self, data: bytes, header: BatchHeader, fetched: PartitionBatches, records: Many
    ) -> None:
        deltas = records.offset_deltas
        self._is_odd = bool(((deltas < 0) | (deltas > header.last_offset_delta)).any())
        base = header.base_offset
        first, until = fetched.from_offset - base, fetched.until_offset - base
        is_wanted = (deltas >= max(first, 0)) & (deltas < min(until, _INT64_MAX))
        self._records = records if is_wanted.all() else records.take(is_wanted)
        self._data, self._header = data, header
        self.count = len(self._records.offset_deltas)

    def room(self, wants: frozenset[str]) -> int | None:
        """Return the bytes of the requested columns; None if the batch is irregular."""
        deltas, base = self._records.time_deltas, self._header.base_timestamp
        ends = (int(deltas.min()), int(deltas.max())) if self.count else ()
        if self._is_odd or any(abs(base + delta) > _INT64_MAX for delta in ends):
            return None
        pieces = (("key", self._records.keys), ("value", self._records.values))
        return sum(column.size for name, column in pieces if name in wants)

    def __call__(self, name: str, kind: pa.DataType) -> pa.Array[Any]:
        """Build one column."""
        records, header = self._records, self._header
        match name:
            case "offset":
                return pa.array(header.base_offset + records.offset_deltas, kind)
            case "timestamp":
                return self._times().cast(kind)
            case "headers":
                return pa.array([[]] * self.count, kind)
            case _:
                pieces = records.keys if name == "key" else records.values
                return _column(self._data, pieces).cast(kind)

    def _times(self) -> pa.Array[Any]:
        header, deltas = self._header, self._records.time_deltas
        if header.attributes & LOG_APPEND_TIME:
            times = np.full(self.count, header.max_timestamp)
        else:
            times = header.base_timestamp + deltas
        column: pa.Array[Any] = pa.array(times, mask=times == NO_TIMESTAMP)
        return column


def _column(data: bytes, pieces: Pieces) -> pa.Array[Any]:
    """Copy ordered pieces of the data to a column."""
    starts, sizes = pieces
    count = len(starts)
    # Each piece, and the gap between it and the next one; every second element is taken.
    borders = np.empty(2 * count + 1, np.int32)
    borders[0:-1:2] = starts
    borders[1::2] = starts + np.maximum(sizes, 0)
    borders[-1] = len(data)
    everything: pa.Array[Any] = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(borders.data), pa.py_buffer(data)]
    )
    places: Any = pa.array(np.arange(0, 2 * count, 2), mask=sizes < 0)
    return everything.take(places)


def _starts(data: bytes, count: int) -> NDArray[np.int64] | None:
    """Return the start and contents of each record; None if they do not fill the data."""
    starts: list[tuple[int, int]] = []
    at, length = 0, len(data)
    try:
        for _ in range(count):
            start, byte = at, data[at]
            size, shift = byte & 0x7F, 7
            while byte >= _MORE:
                if shift == _FIVE_BYTES:
                    return None
                at += 1
                byte = data[at]
                size |= (byte & 0x7F) << shift
                shift += 7
            at += 1
            starts.append((start, at))
            if size & 1:  # negative
                return None
            at += size >> 1
    except IndexError:
        return None
    return np.array(starts, np.int64).reshape(-1, 2) if at == length else None


def _numbers(data: NDArray[np.uint8], at: Integers, bits: int) -> tuple[Integers, Integers]:
    """Read a number at each position; return numbers and ends, invalid ones past the data."""
    at = np.minimum(at, len(data) - _PADDING)
    result = np.zeros(len(at), np.uint64)
    sizes = np.ones(len(at), np.int64)
    is_open = np.ones(len(at), np.bool_)
    for number in range(-(-bits // 7)):
        byte = data[at + number]
        seven = (byte & 0x7F).astype(np.uint64) << np.uint64(7 * number)
        result |= np.where(is_open, seven, np.uint64(0))
        is_open &= byte >= _MORE
        if not is_open.any():
            break
        sizes += is_open
    half = (result >> np.uint64(1)).astype(np.int64)
    is_odd = is_open | (result >> np.uint64(bits) > 0)
    ends = np.where(is_odd, len(data), at + sizes)
    return half ^ -(result & np.uint64(1)).astype(np.int64), ends


def _pieces(data: NDArray[np.uint8], at: Integers) -> tuple[Pieces, Integers]:
    sizes, at = _numbers(data, at, _INT)
    ends = np.where(sizes < -1, len(data), at + np.maximum(sizes, 0))
    return Pieces(at, sizes), ends
