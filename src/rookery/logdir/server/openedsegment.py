"""Opens a segment on disk: finds its batches, and how far it can be trusted.

A cleanly closed segment is opened by its index: one header is read for every piece of about a
megabyte. Otherwise, or if the index is missing or wrong, every batch is read and its CRC is
checked.

    index sound ──► pieces from its entries ──► walk from the last one on
    else        ──► walk from the beginning ──► pieces, and new indexes

Damaged bytes stay part of the piece before them: a reader of them gets an error, and the data after
them stays readable.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.indexes import Indexer, PositionEntry, TimeEntry
from rookery.formats.logfile.names import FileKind
from rookery.logdir.segment import LogFileSegment
from rookery.records import batches
from rookery.records.batches import BatchHeader

PIECE_BYTES: Final = 1024 * 1024
"""The maximum number of bytes to scan for a reader of one offset."""


class SegmentPiece(NamedTuple):
    """Adjacent batches that are scanned together."""

    base_offset: int
    position: int
    max_timestamp: int
    """An upper bound for records up to its end; an earlier piece may have reached it."""


class OpenedSegment(NamedTuple):
    """A segment, up to its last valid batch."""

    segment: LogFileSegment
    size: int
    """The end position of its last valid batch."""
    end_offset: int
    pieces: list[SegmentPiece]
    largest: TimeEntry
    """The largest timestamp, and the last offset of its batch."""
    entries: int
    """The number of usable entries in the `.index`."""
    times: int
    """… and of the `.timeindex`."""
    last_time: int
    """The timestamp of the last of these."""
    epochs: list[LoggedEpoch]
    """The leader epochs in its batches, if all of them were read."""
    indexes: Indexer | None
    """Both indexes rebuilt, if those on disk are unusable."""


def open_segment(
    segment: LogFileSegment, *, is_trusted: bool, stop: int = 1 << 63
) -> OpenedSegment:
    """Open a segment; check every batch unless it is trusted.

    Args:
        segment: the segment to open.
        is_trusted: whether it was closed cleanly, so that its indexes are valid.
        stop: the base offset of the next segment.

    Raises:
        OSError: it cannot be read.
    """
    opened = _by_index(segment, stop) if is_trusted else None
    return opened if opened is not None else _by_walk(segment)


def _by_walk(segment: LogFileSegment) -> OpenedSegment:
    indexer = Indexer(segment.base_offset)
    pieces: list[SegmentPiece] = []
    epochs: list[LoggedEpoch] = []
    end, end_offset = 0, segment.base_offset
    for header in segment.headers():
        indexer.add(header)
        if not epochs or header.partition_leader_epoch > epochs[-1].epoch:
            epochs.append(LoggedEpoch(header.partition_leader_epoch, header.base_offset))
        is_far = not pieces or header.end - pieces[-1].position > PIECE_BYTES
        # Start a new piece after damage, so that the damage does not hide later batches.
        if is_far or header.position > end:
            pieces.append(SegmentPiece(header.base_offset, header.position if pieces else 0, -1))
        pieces[-1] = pieces[-1]._replace(max_timestamp=indexer.largest.timestamp)
        end, end_offset = header.end, header.last_offset + 1
    times = indexer.times
    last_time = times[-1].timestamp if times else -1
    return OpenedSegment(
        segment, end, end_offset, pieces, indexer.largest,
        len(indexer.positions), len(times), last_time, epochs, indexer,
    )  # fmt: skip


def _by_index(segment: LogFileSegment, stop: int) -> OpenedSegment | None:
    """Open a segment by its indexes; None, if they do not match the file."""
    if not all(segment.beside(kind).exists() for kind in (FileKind.INDEX, FileKind.TIMES)):
        return None
    entries, times = segment.positions, segment.times
    if not entries or entries[-1].position >= segment.size or entries[-1].offset >= stop:
        return None
    pieces = _pieces(segment, entries)
    if pieces is None:
        return None
    newest = [times[-1] if times else TimeEntry(-1, segment.base_offset)]
    last_time = newest[0].timestamp
    end, end_offset = 0, segment.base_offset
    for header in segment.headers(entries[-1].offset):
        if header.max_timestamp > newest[-1].timestamp:
            newest.append(TimeEntry(header.max_timestamp, header.last_offset))
        end, end_offset = header.end, header.last_offset + 1
    if not end:
        return None
    timed = list(_bound_times(pieces, [*times, *newest[1:]], end_offset))
    return OpenedSegment(
        segment, end, end_offset, timed, newest[-1], len(entries), len(times), last_time, [], None
    )


def _pieces(segment: LogFileSegment, entries: list[PositionEntry]) -> list[SegmentPiece] | None:
    """Read a header for every piece; None, if one is not at its indexed position."""
    pieces = []
    fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for entry in (PositionEntry(-1, 0), *_steps(entries)):
            header = _header(fd, entry.position)
            # An entry can cover several batches: it has the first one's position and the last
            # offset.
            if header is None or (entry.position and header.last_offset > entry.offset):
                return None
            pieces.append(SegmentPiece(header.base_offset, entry.position, -1))
    finally:
        os.close(fd)
    return pieces


def _steps(entries: list[PositionEntry]) -> Iterator[PositionEntry]:
    """Choose entries that are about one piece apart."""
    position = 0
    for at, entry in enumerate(entries):
        following = entries[at + 1].position if at + 1 < len(entries) else entry.position
        if following - position > PIECE_BYTES and entry.position > position:
            position = entry.position
            yield entry


def _bound_times(
    pieces: list[SegmentPiece], times: list[TimeEntry], end_offset: int
) -> Iterator[SegmentPiece]:
    """Set an upper time bound for the records up to the end of each piece."""
    latest = times[-1].timestamp if times else -1
    for at, piece in enumerate(pieces):
        last = (pieces[at + 1].base_offset if at + 1 < len(pieces) else end_offset) - 1
        index = bisect_left(times, last, key=lambda entry: entry.offset)
        time = times[index].timestamp if index < len(times) else latest
        yield piece._replace(max_timestamp=time)


def _header(fd: int, position: int) -> BatchHeader | None:
    data = os.pread(fd, batches.HEADER_SIZE, position)
    if len(data) < batches.HEADER_SIZE:
        return None
    header = BatchHeader._make((*batches.FIELDS.unpack(data), position))
    is_sound = header.magic == batches.MAGIC and header.size >= batches.HEADER_SIZE
    return header if is_sound else None
