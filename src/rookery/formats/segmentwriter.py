"""Builds a segment, its index and its times file from a sequence of batches.

Batches are checked as they are added. The CRC of the segment is combined from those of the batches.
Each byte is therefore read once, and damage is never copied into a new object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rookery.errors import Corrupt
from rookery.formats.segment import (
    DEFAULT_INTERVAL,
    DEFAULT_INTERVAL_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_MESSAGES,
    MAX_SEGMENT_BYTES,
    IndexBuilder,
    SegmentFooter,
    SegmentHeader,
)
from rookery.formats.times import SegmentAbort, SegmentEpoch, SegmentOrigin, TimeBlock, Times
from rookery.records import batches
from rookery.records.batches import FIELDS, BatchHeader
from rookery.records.crc import checksum, combine
from rookery.records.kernel import Buffer

# The position of the first byte that a batch's own CRC covers.
_COVERED_FROM: Final = 21
# A view costs about 200 bytes, so small parts are copied and joined.
_COPY_BELOW: Final = 4096
_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """A finished segment: the contents of its three files."""

    header: SegmentHeader
    footer: SegmentFooter
    size: int
    max_timestamp: int
    """The highest time of a batch, -1 if there is none."""
    parts: list[Buffer]
    """The `.kfs` file in consecutive parts."""
    index: bytes
    times: bytes


class SegmentWriter:
    """Takes the batches of one partition in the order of their offsets."""

    def __init__(
        self,
        base_offset: int,
        *,
        interval: int = DEFAULT_INTERVAL,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    ) -> None:
        """Start a segment.

        Args:
            base_offset: the first offset that the segment covers, whether or not it has a record.
            interval: messages between two entries of the index.
            interval_bytes: maximum bytes between them, rounded up to whole batches.
        """
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is below 0")
        self.base_offset = base_offset
        self.next_offset = base_offset
        """The lowest offset that the next batch may begin with."""
        self.messages = 0
        self._body = _Parts()
        self._index = IndexBuilder(interval, interval_bytes)
        self._blocks = _Blocks()

    @property
    def size(self) -> int:
        """The size of the `.kfs` file if it were finished now."""
        return HEADER_BYTES + self._body.size + FOOTER_BYTES

    def has_room(self, header: BatchHeader) -> bool:
        """Return whether one more batch keeps the segment within the format's limits."""
        return (
            self.size + header.size <= MAX_SEGMENT_BYTES
            and self.messages + header.record_count <= MAX_MESSAGES
        )

    def add(self, *parts: Buffer) -> BatchHeader:
        """Add one batch, stamped with its offset and leader epoch, in one or more parts.

        Large parts are not copied: they are kept until the segment is written.

        Raises:
            Corrupt: it is damaged.
            ValueError: it is out of order, or the segment has no room for it.
        """
        header, crc = _check(parts)
        if header.base_offset < self.next_offset:
            raise ValueError(
                f"batch at offset {header.base_offset}, where {self.next_offset} may come next"
            )
        if not self.has_room(header):
            raise ValueError(f"a segment of {self.size} bytes has no room for {header.size} more")
        position = HEADER_BYTES + self._body.size
        if self._index.add(header, position):
            self._blocks.begin(header.base_offset, position)
        self._blocks.extend(header, crc)
        self._body.extend(parts)
        self.next_offset = header.last_offset + 1
        self.messages += header.record_count
        return header

    def finish(
        self,
        origin: SegmentOrigin,
        last_offset: int,
        created_ms: int,
        *,
        aborted: Sequence[SegmentAbort] = (),
        epochs: Sequence[SegmentEpoch] = (),
    ) -> FinishedSegment:
        """Finish the segment.

        Args:
            origin: the partition and the writer of the segment.
            last_offset: the last offset that it covers, whether or not it has a record.
            created_ms: the current time.
            aborted: aborted transactions of the partition; those that overlap are kept.
            epochs: leader epochs of the partition, rising; those with offsets in it are kept.

        Raises:
            ValueError: the last offset is below the batches' or the base offset.
        """
        if last_offset < max(self.next_offset - 1, self.base_offset):
            raise ValueError(f"last offset {last_offset} is before {self.next_offset - 1}")
        header = SegmentHeader(self.base_offset, self.messages, created_ms)
        footer = SegmentFooter(self._blocks.total_crc(), last_offset)
        index = self._index.index.pack()
        times = Times(
            origin=origin,
            header=header,
            footer=footer,
            size=self.size,
            index_crc=checksum(index),
            blocks=self._blocks.rows(),
            aborted=_find_overlapping(aborted, self.base_offset, last_offset),
            epochs=_within(epochs, self.base_offset, last_offset),
        )
        parts = [header.pack(), *self._body.finish(), footer.pack()]
        return FinishedSegment(
            header, footer, self.size, times.max_timestamp, parts, index, times.pack()
        )


class _Parts:
    """Parts of a file: large ones unchanged, small ones joined."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[Buffer] = []
        self._small = bytearray()

    def extend(self, parts: Sequence[Buffer]) -> None:
        for part in parts:
            self.size += len(part)
            if len(part) < _COPY_BELOW:
                self._small += part
            else:
                self._flush()
                self._parts.append(part)

    def finish(self) -> list[Buffer]:
        self._flush()
        return self._parts

    def _flush(self) -> None:
        if self._small:
            self._parts.append(self._small)
            self._small = bytearray()


class _Blocks:
    """The checksums and highest times of a segment's blocks."""

    def __init__(self) -> None:
        self._done: list[TimeBlock] = []
        self._total = 0
        self._open: tuple[int, int] | None = None
        self._crc = 0
        self._size = 0
        self._time = _NO_TIME

    def begin(self, offset: int, position: int) -> None:
        self._close()
        self._open = offset, position

    def extend(self, header: BatchHeader, crc: int) -> None:
        self._crc = combine(self._crc, crc, header.size)
        self._size += header.size
        self._time = max(self._time, header.max_timestamp)

    def rows(self) -> list[TimeBlock]:
        self._close()
        return self._done

    def total_crc(self) -> int:
        self._close()
        return self._total

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(TimeBlock(*self._open, self._time, self._crc))
            self._total = combine(self._total, self._crc, self._size)
        self._open, self._crc, self._size, self._time = None, 0, 0, _NO_TIME


def _check(parts: Sequence[Buffer]) -> tuple[BatchHeader, int]:
    """Read the header of a batch in parts; return it and the CRC-32C of the whole batch."""
    head = _first_bytes(parts, batches.HEADER_SIZE)
    size = sum(map(len, parts))
    header = BatchHeader._make((*FIELDS.unpack(head), 0))
    if header.magic != batches.MAGIC or header.size != size:
        raise Corrupt(f"{size} bytes with magic {header.magic} are not one batch of format 2")
    covered = _crc_from(parts, _COVERED_FROM)
    if covered != header.crc:
        raise Corrupt(f"the batch at offset {header.base_offset}: its CRC-32C does not match")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        raise Corrupt(f"the batch at offset {header.base_offset} counts below 0")
    return header, combine(checksum(head[:_COVERED_FROM]), covered, size - _COVERED_FROM)


def _first_bytes(parts: Sequence[Buffer], size: int) -> bytes:
    first = b""
    for part in parts:
        first += bytes(part[: size - len(first)])
        if len(first) == size:
            return first
    raise Corrupt(f"{len(first)} bytes are not a batch: its header alone has {size}")


def _crc_from(parts: Sequence[Buffer], skip: int) -> int:
    crc = 0
    for part in parts:
        if skip < len(part):
            crc = checksum(memoryview(part)[skip:], crc)
        skip = max(skip - len(part), 0)
    return crc


def _find_overlapping(aborted: Sequence[SegmentAbort], base: int, last: int) -> list[SegmentAbort]:
    inside = [row for row in aborted if row.first_offset <= last and row.last_offset >= base]
    return sorted(inside, key=lambda row: (row.last_offset, row.first_offset, row.producer_id))


def _within(epochs: Sequence[SegmentEpoch], base: int, last: int) -> list[SegmentEpoch]:
    begun = [epoch for epoch in epochs if epoch.start_offset <= last]
    before = [epoch for epoch in begun if epoch.start_offset <= base]
    return before[-1:] + begun[len(before) :]
