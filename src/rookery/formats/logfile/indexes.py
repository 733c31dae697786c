"""`.index`, `.timeindex` and `.txnindex`: offsets, times and aborted transactions.

    .index      offset from the base (4), position in the file (4): the last offset of a batch, and
                where that batch begins
    .timeindex  largest time so far (8), last offset of the batch that has it, from the base (4)
    .txnindex   version 0 (2), producer id, first offset, last offset, last stable offset (8 each)

A running broker keeps the first two at their full size, with zeros after the used part. So does one
that was killed. Neither file has a checksum: an entry that does not rise is treated as the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer

INTERVAL_BYTES: Final = 4096
"""Bytes of batches between two entries: Kafka's default for `index.interval.bytes`."""

_POSITION: Final = Struct(">ii")
_TIME: Final = Struct(">qi")
_ABORTED: Final = Struct(">hqqqq")
POSITION_BYTES: Final = _POSITION.size
TIME_BYTES: Final = _TIME.size
ABORTED_BYTES: Final = _ABORTED.size


class PositionEntry(NamedTuple):
    """The last offset of a batch, and the position of that batch in the file."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to this offset is later than this time."""

    timestamp: int
    offset: int


class LoggedAbort(NamedTuple):
    """An aborted transaction, and the last stable offset when it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_positions(data: Buffer, base_offset: int) -> list[PositionEntry]:
    """Read a `.index` file, as long as its entries rise."""
    entries: list[PositionEntry] = []
    last = PositionEntry(base_offset - 1, 0)
    for relative, position in _POSITION.iter_unpack(_whole(data, _POSITION)):
        entry = PositionEntry(base_offset + relative, position)
        if entry.offset <= last.offset or entry.position <= last.position:
            break
        entries.append(entry)
        last = entry
    return entries


def pack_positions(entries: Iterable[PositionEntry], base_offset: int) -> bytes:
    """Write a `.index` file without padding."""
    return b"".join(_POSITION.pack(entry.offset - base_offset, entry.position) for entry in entries)


def parse_times(data: Buffer, base_offset: int) -> list[TimeEntry]:
    """Read a `.timeindex` file, as long as its entries rise."""
    entries: list[TimeEntry] = []
    last = TimeEntry(-1, base_offset - 1)
    for timestamp, relative in _TIME.iter_unpack(_whole(data, _TIME)):
        entry = TimeEntry(timestamp, base_offset + relative)
        if entry.timestamp <= last.timestamp or entry.offset < last.offset or not timestamp:
            break
        entries.append(entry)
        last = entry
    return entries


def pack_times(entries: Iterable[TimeEntry], base_offset: int) -> bytes:
    """Write a `.timeindex` file without padding."""
    return b"".join(_TIME.pack(entry.timestamp, entry.offset - base_offset) for entry in entries)


def parse_aborted(data: Buffer, name: str = "txnindex") -> list[LoggedAbort]:
    """Read a `.txnindex` file.

    Raises:
        Corrupt: it is damaged, or of a newer version; the text begins with the name.
    """
    if len(data) % _ABORTED.size:
        raise Corrupt(f"{len(data)} bytes are not a number of entries; rebuild it", name=name)
    entries = []
    for number, (version, *fields) in enumerate(_ABORTED.iter_unpack(data)):
        entry = LoggedAbort(*fields)
        if version != 0:
            raise Corrupt(f"entry {number} has version {version}; only 0 is known", name=name)
        if not 0 <= entry.first_offset <= entry.last_offset:
            reason = f"entry {number} ends at {entry.last_offset}, before it begins"
            raise Corrupt(reason, name=name)
        entries.append(entry)
    return entries


def pack_aborted(entries: Iterable[LoggedAbort]) -> bytes:
    """Write a `.txnindex` file."""
    return b"".join(_ABORTED.pack(0, *entry) for entry in entries)


def position_of(entries: list[PositionEntry], offset: int) -> int:
    """Return the position in the file from which to search for the batch that holds an offset."""
    at = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[at - 1].position if at else 0


def offset_before(entries: list[TimeEntry], timestamp: int, base_offset: int) -> int:
    """Return the offset from which to search for the first record of that time or later."""
    at = bisect_right(entries, timestamp - 1, key=lambda entry: entry.timestamp)
    return entries[at - 1].offset + 1 if at else base_offset


class Indexer:
    """Builds both indexes of a segment as Kafka does, from the headers of its batches in order."""

    def __init__(self, base_offset: int, interval_bytes: int = INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self.positions: list[PositionEntry] = []
        self.times: list[TimeEntry] = []
        self.largest = TimeEntry(-1, base_offset)
        """The largest time so far, and the last offset of the batch that has it."""
        self._interval = interval_bytes
        self._since = 0

    def add(self, header: BatchHeader) -> bool:
        """Add the next batch, at `header.position` of the file; return whether it got an entry."""
        if header.max_timestamp > self.largest.timestamp:
            self.largest = TimeEntry(header.max_timestamp, header.last_offset)
        is_due = self._since > self._interval
        if is_due:
            self.positions.append(PositionEntry(header.last_offset, header.position))
            self.add_time()
            self._since = 0
        self._since += header.size
        return is_due

    def add_time(self) -> bool:
        """Add the largest time so far, as at the end of a segment; return whether it was new."""
        last = self.times[-1] if self.times else TimeEntry(0, self.base_offset)
        if self.largest.timestamp <= last.timestamp:
            return False
        self.times.append(self.largest)
        return True


def _whole(data: Buffer, entry: Struct) -> memoryview:
    # A file that was truncated within an entry is valid up to that entry.
    return memoryview(data)[: len(data) - len(data) % entry.size]
