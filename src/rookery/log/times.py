"""Times to offsets: the first record at or after a time, and the one with the highest.

The state knows the highest time of every row, so one row has to be read, seldom more: batches and
records within it are looked at, packed or not.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition
from rookery.log.reader import Reader
from rookery.log.tail import Key
from rookery.records import batch as batches
from rookery.records import record as records
from rookery.records.batch import BatchHeader, TimestampType
from rookery.wire.buffer import Buffer

_STEP: Final = 4096
# Records of a larger batch are looked through in a thread.
_THREAD_FROM_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 1024 * 1024


class Stamped(NamedTuple):
    """An offset and the time of the record there."""

    offset: int
    timestamp: int


async def first_at(reader: Reader, key: Key, partition: Partition, time_ms: int) -> Stamped | None:
    """Find the first record that is not older than a time; None if all are.

    Raises:
        Corrupt, Conflict, Unavailable: as `Reader.read`.
    """
    start, end = partition.log_start, partition.next_offset
    row = next_row(partition.times, 0, time_ms)
    while row < len(partition.times):
        offset = max(partition.base_offsets[row], start)
        stop = min(partition.row(row).end_offset, end)
        found = await _search(reader, key, partition, offset, stop, time_ms)
        if found is not None:
            return found
        # What the row's time was told for lies before the log's start.
        row = next_row(partition.times, partition.row_of(stop - 1) + 1, time_ms)
    return None


async def highest(reader: Reader, key: Key, partition: Partition) -> Stamped | None:
    """Find the first of the records with the highest time; None if there are no records.

    Raises:
        Corrupt, Conflict, Unavailable: as `Reader.read`.
    """
    start, times = partition.log_start, partition.times
    if not times or start == partition.next_offset:
        return None
    if partition.base_offsets[0] >= start:
        return await first_at(reader, key, partition, max(times))
    # The time of the first row may be that of a record which is gone.
    others = max(times[1:], default=-1)
    best = await _highest_from(reader, key, partition, start, partition.row(0).end_offset)
    if best is not None and best.timestamp >= others:
        return best
    return await first_at(reader, key, partition, others)


def next_row(times: array[int], index: int, time_ms: int) -> int:
    """Return the first row from an index on that has a time not below; the row count if none."""
    for at in range(index, len(times), _STEP):
        piece = times[at : at + _STEP]
        if max(piece) >= time_ms:
            return at + next(i for i, time in enumerate(piece) if time >= time_ms)
    return len(times)


async def _search(
    reader: Reader, key: Key, partition: Partition, offset: int, stop: int, time_ms: int
) -> Stamped | None:
    """Look through the batches from an offset to another."""
    begin = offset
    while offset < stop:
        read = await reader.read(key, partition, offset, _READ_BYTES)
        data = b"".join(read.parts)
        for header in batches.fetched(data):
            if header.base_offset >= stop:
                return None
            if header.max_timestamp >= time_ms:
                found = await _in_thread(data, header, begin, time_ms)
                if found is not None:
                    return found
        offset = read.next_offset
    return None


async def _in_thread(data: Buffer, header: BatchHeader, begin: int, time_ms: int) -> Stamped | None:
    if header.size < _THREAD_FROM_BYTES and not header.attributes & batches.CODEC_MASK:
        return _first_in(data, header, begin, time_ms)
    return await asyncio.to_thread(_first_in, data, header, begin, time_ms)


def _first_in(data: Buffer, header: BatchHeader, begin: int, time_ms: int) -> Stamped | None:
    """Find the record in a batch: not before `begin`, and not older than the time."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return Stamped(max(header.base_offset, begin), header.max_timestamp)
    for record in records.read(data, header):
        if record.timestamp >= time_ms and record.offset >= begin:
            return Stamped(record.offset, record.timestamp)
    return None


async def _highest_from(
    reader: Reader, key: Key, partition: Partition, offset: int, stop: int
) -> Stamped | None:
    """Look at every record from an offset to another."""
    best: Stamped | None = None
    begin = offset
    while offset < stop:
        read = await reader.read(key, partition, offset, _READ_BYTES)
        found = await asyncio.to_thread(_highest_in, b"".join(read.parts), begin, stop)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
        offset = read.next_offset
    return best


def _highest_in(data: Buffer, begin: int, stop: int) -> Stamped | None:
    times = [
        Stamped(record.offset, record.timestamp)
        for record in records.read_all(data)
        if begin <= record.offset < stop
    ]
    # The first one wins among equals.
    return max(times, key=lambda stamped: stamped.timestamp, default=None)
