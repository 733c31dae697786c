"""One segment of a partition: its `.log`, located by its indexes and read in windows.

Files are read by `pread`, at most a window at a time, so memory use does not depend on the segment
size. An index is a hint: its positions are checked before use, and a segment without an index is
scanned once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rookery.formats.logfile.indexes import (
    ABORTED_BYTES,
    POSITION_BYTES,
    TIME_BYTES,
    Indexer,
    LoggedAbort,
    PositionEntry,
    TimeEntry,
    offset_before,
    parse_aborted,
    parse_positions,
    parse_times,
    position_of,
)
from rookery.formats.logfile.names import FileKind, FileName, file_name
from rookery.logdir.damage import Damage, damage_of
from rookery.records.batches import OVERHEAD, BatchHeader
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule
from rookery.records.scan import BatchDamage, Scan, scan

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The number of bytes that are read at a time, unless a batch is larger."""
MAX_INDEX_BYTES: Final = 256 * 1024 * 1024
"""Larger index files were not written by Kafka."""
MAX_BATCH_BYTES: Final = (1 << 31) - 1
MAX_OFFSET: Final = (1 << 63) - 1

_INDEX_BLOCKS: Final = 4096
_TRIES: Final = 3


class SegmentBatch(NamedTuple):
    """A batch and its bytes."""

    header: BatchHeader
    """Its `position` is the position in the file."""
    data: memoryview


class LogFileSegment:
    """The files of one segment; no file stays open between calls."""

    def __init__(self, folder: Path, base_offset: int) -> None:
        """Set up without reading anything."""
        self.folder = folder
        self.base_offset = base_offset
        self.path = folder / file_name(base_offset, FileKind.LOG)
        self.damage: list[Damage] = []
        """The known damage; `check` finds all of it."""
        self._positions: list[PositionEntry] | None = None
        self._times: list[TimeEntry] | None = None

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self.path.stat().st_size

    def beside(self, kind: FileKind) -> Path:
        """Return the path of another file of this segment."""
        return self.folder / FileName(self.base_offset, kind).text

    @property
    def positions(self) -> list[PositionEntry]:
        """The positions of batches; rebuilt in memory if the index is missing."""
        if self._positions is None:
            data = _read_index(self.beside(FileKind.INDEX), POSITION_BYTES)
            if data is None:
                self._rebuild(FileKind.INDEX)
            else:
                self._positions = parse_positions(data, self.base_offset)
        return self._positions or []

    @property
    def times(self) -> list[TimeEntry]:
        """The offsets of timestamps; rebuilt in memory if the index is missing."""
        if self._times is None:
            data = _read_index(self.beside(FileKind.TIMES), TIME_BYTES)
            if data is None:
                self._rebuild(FileKind.TIMES)
            else:
                self._times = parse_times(data, self.base_offset)
        return self._times or []

    def read_aborted(self) -> list[LoggedAbort]:
        """Read the aborted transactions that end in this segment.

        Raises:
            Corrupt: the file that lists them is damaged.
        """
        path = self.beside(FileKind.ABORTED)
        data = _read_index(path, ABORTED_BYTES)
        return [] if data is None else parse_aborted(data, str(path))

    def batches(self, offset: int = 0, end: int | None = None) -> Iterator[SegmentBatch]:
        """Yield the valid batches, starting with the one that contains an offset.

        Each batch is valid until the next one is requested. A damaged batch is skipped and recorded
        in `damage`.

        Args:
            offset: the first wanted offset.
            end: the file position to stop at; the file size, if not given.
        """
        with self.path.open("rb", buffering=0) as file:
            yield from _SegmentPass(self, file.fileno(), end).run(offset)

    def check(self) -> list[BatchHeader]:
        """Read the whole file; return the headers of the valid batches, and record damage."""
        return [batch.header for batch in self.batches()]

    def headers(self, offset: int = 0) -> Iterator[BatchHeader]:
        """Yield the headers of the valid batches, starting with the one that contains an offset."""
        return (batch.header for batch in self.batches(offset))

    def find_end(self, *, is_checked: bool = False) -> int:
        """Return the offset after the last valid batch; the base offset, if there is none.

        With `is_checked` the whole file is read, otherwise only the part after the last index entry
        that points to a valid batch.
        """
        places = (
            []
            if is_checked
            else [position.offset for position in reversed(self.positions[-_TRIES:])]
        )
        for start in (*places, self.base_offset):
            end = self.base_offset
            for header in self.headers(start):
                end = header.last_offset + 1
            if end > self.base_offset:
                return end
        return self.base_offset

    def offset_for_time(self, timestamp: int) -> int:
        """Return the offset at which to start searching for a timestamp."""
        return offset_before(self.times, timestamp, self.base_offset)

    def _rebuild(self, kind: FileKind) -> None:
        path = self.beside(kind)
        self.damage.append(Damage(path, "the index is missing; it was rebuilt in memory"))
        indexer = Indexer(self.base_offset)
        # The scan itself uses positions only to skip damage.
        self._positions = self._positions or []
        for header in self.headers():
            indexer.add(header)
        indexer.add_time()
        if kind is FileKind.INDEX:
            self._positions = indexer.positions
        if kind is FileKind.TIMES:
            self._times = indexer.times

    def note(self, damage: Damage) -> None:
        """Record damage, once."""
        if damage not in self.damage:
            self.damage.append(damage)


class _SegmentPass:
    """One pass through a log file."""

    def __init__(self, segment: LogFileSegment, descriptor: int, end: int | None) -> None:
        self.segment = segment
        self.descriptor = descriptor
        self.end = os.fstat(descriptor).st_size if end is None else end

    def run(self, offset: int) -> Iterator[SegmentBatch]:
        position = self._begin(offset)
        next_offset = self.segment.base_offset
        size = WINDOW_BYTES
        while position < self.end:
            window = self._scan(position, size, next_offset)
            for header in window.headers:
                if header.last_offset >= offset:
                    at = header.position
                    batch = window.data[at : at + header.size]
                    yield SegmentBatch(header._replace(position=position + at), batch)
            if window.damage is not None:
                after = self._get_over(window.damage)
                if after is None:
                    return
                position, next_offset = after, window.damage.offset
                size = WINDOW_BYTES
                continue
            position, next_offset = position + window.end, window.next_offset
            # A batch that is larger than the window is read whole next time.
            size = max(WINDOW_BYTES, min(window.needed, MAX_BATCH_BYTES))

    def _scan(self, position: int, size: int, lowest: int) -> Scan:
        """Scan a window of the file; its first batch has at least this offset."""
        extent = ExpectedExtent(lowest, FAR, position, self.end - position)
        expected = Expectation.of(extent, OffsetRule.SPARSE)
        return scan(self._window(position, size), expected)

    def _window(self, position: int, size: int) -> memoryview:
        return memoryview(os.pread(self.descriptor, min(size, self.end - position), position))

    def _begin(self, offset: int) -> int:
        """Find the start position; the index may be wrong, so its position is checked."""
        if offset <= self.segment.base_offset:
            return 0
        position = position_of(self.segment.positions, offset)
        if not position or position >= self.end:
            return 0
        return position if self._is_batch(position, self.segment.base_offset, offset) else 0

    def _is_batch(self, position: int, lowest: int, highest: int) -> bool:
        """Whether a valid batch begins there, with offsets not beyond the wanted one."""
        window = self._scan(position, WINDOW_BYTES, lowest)
        if not window.headers and window.needed > len(window.data):
            window = self._scan(position, min(window.needed, MAX_BATCH_BYTES), lowest)
        return bool(window.headers) and window.headers[0].base_offset <= highest

    def _get_over(self, damage: BatchDamage) -> int | None:
        """Record damage; return the position of the next valid batch, None if there is none."""
        after = self._beyond(damage)
        end = None
        if after is not None:
            end = int.from_bytes(self._window(after, 8), "big", signed=True)
            if damage.is_torn:
                reason = "its length leads beyond the end of the file"
                damage = damage._replace(reason=reason, is_torn=False)
        self.segment.note(damage_of(self.segment.path, damage, end))
        return after

    def _beyond(self, damage: BatchDamage) -> int | None:
        """Find the next valid batch after a damaged one: by its length, or by the index."""
        begin = damage.position
        head = bytes(self._window(begin, OVERHEAD))
        length = int.from_bytes(head[8:], "big", signed=True)
        places = [begin + OVERHEAD + length] if length > 0 else []
        places += [entry.position for entry in self.segment.positions if entry.position > begin]
        for position in places:
            if position < self.end and self._is_batch(position, damage.offset, MAX_OFFSET):
                return position
        return None


def _read_index(path: Path, entry_bytes: int) -> bytes | None:
    """Read the used part of an index file; None if it does not exist."""
    try:
        with path.open("rb", buffering=0) as file:
            return _read_used(file.fileno(), entry_bytes)
    except FileNotFoundError:
        return None


def _read_used(descriptor: int, entry_bytes: int) -> bytes:
    # A running broker preallocates megabytes of zeros after the last entry.
    used = bytearray()
    while block := os.pread(descriptor, _INDEX_BLOCKS * entry_bytes, len(used)):
        used += block
        if not any(block[-entry_bytes:]) or len(used) > MAX_INDEX_BYTES:
            break
    return bytes(used)
