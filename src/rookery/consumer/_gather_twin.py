"""Find records in batches and copy bytes, in pure Python; see `_gather.pyi`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from rookery.consumer.order.table import KEY, OFFSET, PARTITION, ROW_BYTES, TIME, VALUE, WIDTH
from rookery.errors import Error
from rookery.records import batches
from rookery.records.batches import CODEC_MASK, BatchHeader
from rookery.records.kernel import Buffer

_NO_TIME: Final = -(1 << 62)
_FAR: Final = 1 << 60
_SMALLEST: Final = 6


def gather(addresses: Buffer, sizes: Buffer, out: Buffer, /) -> None:
    """Copy byte strings at arbitrary addresses into one contiguous buffer."""
    places = memoryview(addresses).cast("B").cast("q")
    lengths = memoryview(sizes).cast("B").cast("i")
    room = memoryview(out).cast("B")
    if len(places) < len(lengths):
        raise ValueError(f"{len(places)} addresses for {len(lengths)} sizes")
    needed = sum(size for size in lengths if size > 0)
    if needed != len(room):
        raise ValueError(f"{needed} bytes do not fit a buffer of {len(room)}")
    at = 0
    for place, size in zip(places, lengths, strict=False):
        if size > 0:
            room[at : at + size] = ctypes.string_at(place, size)
            at += size


def unpack(lines: Buffer, columns: Sequence[Buffer], /) -> None:
    """Copy the numbers of rows at arbitrary addresses into columns."""
    places = memoryview(lines).cast("B").cast("q")
    if len(columns) != WIDTH:
        raise ValueError(f"{len(columns)} columns, not {WIDTH}")
    for number, column in enumerate(columns):
        code: Literal["i", "q"] = "i" if number in {PARTITION, KEY + 1, VALUE + 1} else "q"
        out = memoryview(column).cast("B").cast(code)
        if len(out) != len(places):
            raise ValueError(f"column {number} has not the room for {len(places)} rows")
        for row, place in enumerate(places):
            out[row] = int.from_bytes(
                ctypes.string_at(place + 8 * number, 8), sys.byteorder, signed=True
            )


def _numbers(table: Buffer) -> memoryview[int]:
    view = memoryview(table)
    if view.nbytes % ROW_BYTES:
        raise ValueError(f"{view.nbytes} bytes are not whole rows")
    return view.cast("B").cast("q")


class _BrokenBatch(Exception):  # noqa: N818 (it does not leave this module)
    """The batch is compressed, malformed or of another format."""


class _FoundRecord(NamedTuple):
    offset: int
    time: int
    key: int
    key_size: int
    value: int
    value_size: int


def locate(data: Buffer, begin: int, until: int, partition: int, table: Buffer, /) -> int:
    """Record the locations of the records in uncompressed batches; return their number, or -1."""
    out = _numbers(table)
    view = memoryview(data).cast("B")
    start = np.frombuffer(view, np.uint8).ctypes.data if len(view) else 0
    at = 0
    try:
        for header in _headers(view):
            for record in _records(view, header):
                if not begin <= record.offset < until:
                    continue
                if at >= len(out):
                    return -1
                out[at + OFFSET], out[at + TIME] = record.offset, record.time
                out[at + PARTITION] = partition
                out[at + KEY], out[at + KEY + 1] = start + record.key, record.key_size
                out[at + VALUE], out[at + VALUE + 1] = start + record.value, record.value_size
                at += WIDTH
    except (_BrokenBatch, Error, IndexError):
        return -1
    return at // WIDTH


def _headers(view: memoryview) -> Iterator[BatchHeader]:
    at = 0
    while at < len(view):
        header = batches.parse(view, at)
        is_plain = not (header.attributes & CODEC_MASK or header.is_control)
        is_near = abs(header.base_timestamp) < _FAR and 0 <= header.base_offset <= _FAR
        if not is_plain or not is_near or header.record_count < 0:
            raise _BrokenBatch
        yield header
        at = header.end


def _records(view: memoryview, header: BatchHeader) -> Iterator[_FoundRecord]:
    at = header.position + batches.HEADER_SIZE
    for _ in range(header.record_count):
        length, at = _number(view, at, header.end, 32)
        end = at + length
        if length < _SMALLEST or end > header.end:
            raise _BrokenBatch
        time_delta, at = _number(view, at + 1, end, 64)
        delta, at = _number(view, at, end, 32)
        if not 0 <= delta <= header.last_offset_delta or abs(time_delta) >= _FAR:
            raise _BrokenBatch
        key_size, key = _field(view, at, end)
        value_size, value = _field(view, key + max(key_size, 0), end)
        time = header.base_timestamp + time_delta
        if header.timestamp_type:
            time = header.max_timestamp
        moment = _NO_TIME if time == -1 else time
        yield _FoundRecord(header.base_offset + delta, moment, key, key_size, value, value_size)
        at = end
    if at != header.end:
        raise _BrokenBatch


def _field(view: memoryview, at: int, end: int) -> tuple[int, int]:
    size, at = _number(view, at, end, 32)
    if size < -1 or size > end - at:
        raise _BrokenBatch
    return size, at


def _number(view: memoryview, at: int, end: int, bits: int) -> tuple[int, int]:
    number = by = 0
    while at < end and by < bits:
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << by
        if byte < 0x80:
            if number >> bits:
                raise _BrokenBatch
            return (number >> 1) ^ -(number & 1), at
        by += 7
    raise _BrokenBatch
