"""Maps times to offsets: the first record at or after a time, or with the highest time.

The state has the highest time of every row, so usually one row must be read. The batches and
records in it are examined, compressed or not. In a segment, only blocks with sufficiently high
times are examined.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import ApiError, Corrupt
from rookery.formats.layout import SegmentLayout
from rookery.log.read.reader import LogReader
from rookery.log.read.tail import Key
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader, TimestampType
from rookery.wire.buffer import Buffer

_STEP: Final = 4096
# Records of a larger batch are examined in a thread.
_THREAD_FROM_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 1024 * 1024
_FAR: Final = 1 << 63


class TimedRecord(NamedTuple):
    """An offset and the time of the record there."""

    offset: int
    timestamp: int


class _Piece(NamedTuple):
    """Offsets that are searched together, and their highest time, if it is known."""

    offset: int
    stop: int
    max_timestamp: int | None
    size: int


async def first_at(
    reader: LogReader, key: Key, partition: Partition, time_ms: int
) -> TimedRecord | None:
    """Find the first record that is not older than a time; None if all are.

    Raises:
        Corrupt, Conflict, Unavailable: as `LogReader.read`.
    """
    end = partition.next_offset
    index = next_row(partition.times, 0, time_ms)
    while index < len(partition.times):
        row = partition.row(index)
        for piece in await _pieces(reader, row, partition.log_start, time_ms):
            if piece.max_timestamp is None or piece.max_timestamp >= time_ms:
                record = await _search(reader, key, partition, piece, time_ms)
                if record is not None:
                    return record
        # The record with the row's highest time is before the log start, or was compacted away.
        after = min(row.end_offset, end)
        index = next_row(partition.times, partition.row_of(after - 1) + 1, time_ms)
    return None


async def highest(reader: LogReader, key: Key, partition: Partition) -> TimedRecord | None:
    """Find the first of the records with the highest time; None if there are no records.

    Raises:
        Corrupt, Conflict, Unavailable: as `LogReader.read`.
    """
    start, times = partition.log_start, partition.times
    if not times or start == partition.next_offset:
        return None
    if partition.base_offsets[0] >= start:
        record = await first_at(reader, key, partition, max(times))
        if record is not None:
            return record
    # A row's time may be that of a removed record. Then other rows must be examined.
    best: TimedRecord | None = None
    left = array("q", times)
    bases = partition.base_offsets[:]
    while partition.base_offsets and max(left) > (best.timestamp if best is not None else -1):
        index = left.index(max(left))
        left[index] = -1
        row = partition.row(partition.row_of(bases[index]))
        best = _better(best, await _highest_in_row(reader, key, partition, row))
    return best


def next_row(times: array[int], index: int, time_ms: int) -> int:
    """Return the first row from an index on with a time of at least `time_ms`, or the row count."""
    for at in range(index, len(times), _STEP):
        piece = times[at : at + _STEP]
        if max(piece) >= time_ms:
            return at + next(i for i, time in enumerate(piece) if time >= time_ms)
    return len(times)


async def _pieces(
    reader: LogReader, row: Row, log_start: int, time_ms: int = -1
) -> Iterator[_Piece]:
    """Cut a row into pieces that can be searched separately; skip those that are too old."""
    begin, stop = max(row.base_offset, log_start), row.end_offset
    if not row.is_segment:
        return iter([_Piece(begin, stop, None, _READ_BYTES)])
    return _blocks(await reader.layout(row), begin, stop, time_ms)


def _blocks(layout: SegmentLayout, begin: int, stop: int, time_ms: int) -> Iterator[_Piece]:
    first = layout.find_time(time_ms, 0)
    blocks = layout.blocks
    for index in range(first.first if first else len(blocks), len(blocks)):
        block = blocks[index]
        end = blocks[index + 1].offset if index + 1 < len(blocks) else stop
        if end > begin:
            yield _Piece(max(block.offset, begin), end, block.max_timestamp, block.size)


async def _search(
    reader: LogReader, key: Key, partition: Partition, piece: _Piece, time_ms: int
) -> TimedRecord | None:
    """Search batches for the first record that is not older than a time."""
    async for data, headers in _batches(reader, key, partition, piece):
        for header in headers:
            if header.max_timestamp >= time_ms:
                record = await _in_thread(data, header, piece.offset, time_ms)
                if record is not None:
                    return record
    return None


async def _batches(
    reader: LogReader, key: Key, partition: Partition, piece: _Piece
) -> AsyncIterator[tuple[bytes, list[BatchHeader]]]:
    """Read a piece in steps of limited size."""
    offset = piece.offset
    while offset < piece.stop:
        read = await reader.read(key, partition, offset, min(piece.size, _READ_BYTES))
        if read.next_offset <= offset:
            return  # the log was truncated meanwhile
        data = b"".join(read.parts)
        headers = batches.outline(data)  # the reader has checked them
        yield data, [header for header in headers if header.base_offset < piece.stop]
        offset = read.next_offset


async def _in_thread(
    data: Buffer, header: BatchHeader, begin: int, time_ms: int
) -> TimedRecord | None:
    if header.size < _THREAD_FROM_BYTES and not header.attributes & batches.CODEC_MASK:
        return _first_in(data, header, begin, time_ms)
    return await asyncio.to_thread(_first_in, data, header, begin, time_ms)


def _first_in(data: Buffer, header: BatchHeader, begin: int, time_ms: int) -> TimedRecord | None:
    """Find the first record in a batch at or after `begin` that is not older than the time."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.record_count:
        return TimedRecord(max(header.base_offset, begin), header.max_timestamp)
    try:
        for record in recordcodec.read(data, header):
            if record.timestamp >= time_ms and record.offset >= begin:
                return TimedRecord(record.offset, record.timestamp)
    except (ApiError, Corrupt):
        return _stamp_of(header, begin)
    return None


def _stamp_of(header: BatchHeader, begin: int) -> TimedRecord:
    """Use the header of a batch whose records cannot be read.

    Its checksum is right, so the producer sent it like this. A reader that starts at its first
    offset misses nothing.
    """
    return TimedRecord(max(header.base_offset, begin), header.max_timestamp)


async def _highest_in_row(
    reader: LogReader, key: Key, partition: Partition, row: Row
) -> TimedRecord | None:
    """Find the highest time in a row, from the log start on."""
    pieces = list(await _pieces(reader, row, partition.log_start))
    # Highest times first: the others need not be read then.
    pieces.sort(key=lambda piece: -_FAR if piece.max_timestamp is None else -piece.max_timestamp)
    best: TimedRecord | None = None
    for piece in pieces:
        limit = piece.max_timestamp
        if best is not None and limit is not None and limit <= best.timestamp:
            break
        async for data, headers in _batches(reader, key, partition, piece):
            candidate = await asyncio.to_thread(_highest_in, data, headers, piece.offset)
            best = _better(best, candidate)
    return best


def _highest_in(data: Buffer, headers: list[BatchHeader], begin: int) -> TimedRecord | None:
    times = [stamped for header in headers for stamped in _stamps(data, header, begin)]
    # The first one wins among equals.
    return max(times, key=lambda stamped: stamped.timestamp, default=None)


def _stamps(data: Buffer, header: BatchHeader, begin: int) -> list[TimedRecord]:
    try:
        stamps = [
            TimedRecord(record.offset, record.timestamp)
            for record in recordcodec.read(data, header)
        ]
    except (ApiError, Corrupt):
        stamps = [_stamp_of(header, begin)]
    return [stamp for stamp in stamps if stamp.offset >= begin and stamp.timestamp >= 0]


def _better(record: TimedRecord | None, other: TimedRecord | None) -> TimedRecord | None:
    """Return the one with the higher time; the first if they are equal."""
    if record is None or other is None:
        return record or other
    return other if other.timestamp > record.timestamp else record
