"""Appends to the files of one segment: `.log`, `.index`, `.timeindex`, `.txnindex`.

Every write has a fixed position, so a partial write can be repeated over the same bytes. Index
entries are buffered for a while: the indexes of a segment that was not closed cleanly are rebuilt.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rookery.formats.logfile.indexes import (
    INTERVAL_BYTES,
    LoggedAbort,
    PositionEntry,
    TimeEntry,
    pack_aborted,
    pack_positions,
    pack_times,
)
from rookery.formats.logfile.names import FileKind, file_name
from rookery.records.batches import BatchHeader
from rookery.wire.buffer import Buffer

_IOV_MAX: Final = 1024
_KEPT_BACK: Final = 256
_POSITION_BYTES: Final = 8
_TIME_BYTES: Final = 12


class NewBatch(NamedTuple):
    """A batch to append, with its offset and epoch already in its bytes, and its header."""

    header: BatchHeader
    data: Buffer


class SegmentContents(NamedTuple):
    """The existing contents of a segment."""

    size: int
    largest: TimeEntry
    entries: int
    """Entries in the `.index`."""
    times: int
    """Entries in the `.timeindex`."""
    last_time: int
    """The timestamp of the last of these."""


class SegmentFile:
    """The segment of a partition that is being written."""

    def __init__(
        self, folder: Path, base_offset: int, begun: SegmentContents | None = None
    ) -> None:
        """Continue after the existing contents, or start a new segment; nothing is written yet."""
        begun = begun or SegmentContents(0, TimeEntry(-1, base_offset), 0, 0, -1)
        self.folder = folder
        self.base_offset = base_offset
        self.size = begun.size
        self.largest = begun.largest
        """The largest timestamp so far, and the last offset of its batch."""
        self.first_time = -1
        """The timestamp of its first batch, from which its age counts; -1 if unknown."""
        self._last_time = begun.last_time
        self._index_bytes = begun.entries * _POSITION_BYTES
        self._times_bytes = begun.times * _TIME_BYTES
        self._positions: list[PositionEntry] = []
        self._times: list[TimeEntry] = []
        self._since = 0
        self._fd = -1
        self._is_dirty = False

    @property
    def path(self) -> Path:
        """The file with the batches."""
        return self._beside(FileKind.LOG)

    def open(self) -> None:
        """Create missing files, and cut off everything after the known contents."""
        self._open()
        os.ftruncate(self._fd, self.size)
        for kind, size in (
            (FileKind.INDEX, self._index_bytes),
            (FileKind.TIMES, self._times_bytes),
        ):
            fd = os.open(self._beside(kind), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(fd, size)
            finally:
                os.close(fd)

    def append(self, batches: Sequence[NewBatch]) -> int:
        """Write batches after the last ones; return their start position.

        Raises:
            OSError: not all of them were written; retry with the same batches.
        """
        begin = self.size
        _write_all(self._open(), [data for _, data in batches], begin)
        self._is_dirty = True
        position = begin
        for header, data in batches:
            self._note(header, position)
            position += len(data)
        self.size = position
        if len(self._positions) >= _KEPT_BACK:
            self.flush_indexes()
        return begin

    def abort(self, entry: LoggedAbort) -> None:
        """Record an aborted transaction."""
        with self._beside(FileKind.ABORTED).open("ab") as file:
            file.write(pack_aborted([entry]))

    def sync(self) -> None:
        """Return after all batches are on disk."""
        if self._is_dirty:
            os.fdatasync(self._open())
            self._is_dirty = False

    def flush_indexes(self) -> None:
        """Write the buffered entries."""
        positions = pack_positions(self._positions, self.base_offset)
        times = pack_times(self._times, self.base_offset)
        _write_at(self._beside(FileKind.INDEX), positions, self._index_bytes)
        _write_at(self._beside(FileKind.TIMES), times, self._times_bytes)
        self._index_bytes += len(positions)
        self._times_bytes += len(times)
        self._positions, self._times = [], []

    def finish(self) -> None:
        """Complete the indexes and sync the batches, because no more writes are expected."""
        self._note_time()
        self.flush_indexes()
        self.sync()

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _beside(self, kind: FileKind) -> Path:
        return self.folder / file_name(self.base_offset, kind)

    def _open(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o644)
        return self._fd

    def _note(self, header: BatchHeader, position: int) -> None:
        if self.first_time < 0:
            self.first_time = header.max_timestamp
        if header.max_timestamp > self.largest.timestamp:
            self.largest = TimeEntry(header.max_timestamp, header.last_offset)
        if self._since > INTERVAL_BYTES:
            self._positions.append(PositionEntry(header.last_offset, position))
            self._note_time()
            self._since = 0
        self._since += header.size

    def _note_time(self) -> None:
        if self.largest.timestamp > max(self._last_time, 0):
            self._times.append(self.largest)
            self._last_time = self.largest.timestamp


def _write_at(path: Path, data: bytes, position: int) -> None:
    if data:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _write_all(fd, [data], position)
        finally:
            os.close(fd)


def _write_all(fd: int, parts: list[Buffer], position: int) -> None:
    """Write parts one after another, in as many system calls as needed."""
    left = [memoryview(part) for part in parts if len(part)]
    while left:
        written = os.pwritev(fd, left[:_IOV_MAX], position)
        position += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
