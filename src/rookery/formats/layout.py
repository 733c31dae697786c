"""Reads parts of a segment: which bytes to request, and how to check them.

A segment is read in blocks, the runs of batches between two index entries. With its times file,
every byte of a block is covered by the block's CRC. Without it (KafScale writes none), a batch's
own CRC does not cover its first 16 bytes. Length and offsets are then checked against the index,
and against each other where the segment has no gaps. Two things remain unchecked in that case:
leader epochs, and, where records are missing, offsets within the gap. `verify_segment` on the whole
file checks those too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Index,
    Segment,
    SegmentFooter,
    SegmentHeader,
    check_ends,
    verify_segment,
)
from rookery.formats.times import Times
from rookery.records.expectation import EpochAt, Expectation, ExpectedExtent, OffsetRule
from rookery.records.kernel import Buffer

_END_OF_TIME: Final = (1 << 63) - 1


class SegmentBlock(NamedTuple):
    """A run of batches that can be read and checked separately."""

    offset: int
    position: int
    size: int
    max_timestamp: int | None
    """The highest time in it; None if it is not known."""
    crc: int | None


class BlockSpan(NamedTuple):
    """Consecutive whole blocks: the bytes to read."""

    first: int
    stop: int
    """One more than the last block's index."""
    position: int
    size: int


class SegmentLayout:
    """The positions of the batches of one segment."""

    def __init__(
        self,
        name: str,
        ends: tuple[SegmentHeader, SegmentFooter],
        blocks: Sequence[SegmentBlock],
        times: Times | None = None,
        *,
        has_first: bool = True,
    ) -> None:
        """Use `from_times` or `from_index` instead.

        Args:
            name: for errors.
            ends: the segment's header and footer.
            blocks: all of its blocks.
            times: its times file, if there is one.
            has_first: whether the offset of the first block is that of its first batch.
        """
        self.name = name
        self.header, self.footer = ends
        self.blocks = blocks
        self.times = times
        self._has_first = has_first
        self._offsets = [block.offset for block in blocks]
        self._times = [_time(block) for block in blocks]

    @classmethod
    def from_times(cls, times: Times, name: str) -> SegmentLayout:
        """Derive the layout from the times file, which is sufficient; the name is for errors."""
        ends = [block.position for block in times.blocks[1:]] + [times.size - FOOTER_BYTES]
        blocks = [
            SegmentBlock(row.offset, row.position, end - row.position, row.max_timestamp, row.crc)
            for row, end in zip(times.blocks, ends, strict=False)
        ]
        return cls(name, (times.header, times.footer), blocks, times)

    @classmethod
    def from_index(
        cls, index: Index, header: SegmentHeader, footer: SegmentFooter, size: int, name: str
    ) -> SegmentLayout:
        """Derive the layout of a segment without a times file from its index, header and footer.

        Raises:
            Corrupt: the index does not match the segment's header and footer.
        """
        check_ends(header, footer, name)
        rows = [tuple(entry) for entry in index.entries]
        has_first = bool(rows) and rows[0][1] == HEADER_BYTES
        if size > HEADER_BYTES + FOOTER_BYTES and not has_first:
            rows.insert(0, (header.base_offset, HEADER_BYTES))
        rows.append((footer.last_offset + 1, size - FOOTER_BYTES))
        _check_rows(rows, header, name)
        blocks = [
            SegmentBlock(offset, position, after - position, None, None)
            for (offset, position), (_, after) in pairwise(rows)
        ]
        return cls(name, (header, footer), blocks, has_first=has_first)

    @property
    def is_dense(self) -> bool:
        """Whether the segment has a record at every offset."""
        offsets = self.footer.last_offset - self.header.base_offset + 1
        return self.header.message_count == offsets

    def find(self, offset: int, max_bytes: int) -> BlockSpan | None:
        """Return the blocks to read from an offset on: at least one, more if they fit.

        Batches before the offset may come first. If the offset is in a gap, the requested batches
        begin after it. None if the segment has no batches.
        """
        if not self.blocks:
            return None
        first = max(bisect_right(self._offsets, offset) - 1, 0)
        return self.span(first, max_bytes)

    def find_time(self, time_ms: int, max_bytes: int, *, start: int = 0) -> BlockSpan | None:
        """Return the blocks to read for the first record that is not older than a time.

        None if all are older. Without a times file that may be any record. The highest time of a
        block may belong to a marker, or to a record before the log start. Then search again after
        it.

        Args:
            time_ms: the time.
            max_bytes: more blocks follow the first if they fit.
            start: the index of the block to start with.
        """
        for first in range(start, len(self.blocks)):
            if self._times[first] >= time_ms:
                return self.span(first, max_bytes)
        return None

    def span(self, first: int, max_bytes: int) -> BlockSpan:
        """Return the block with this index, and the following blocks that fit."""
        start = self.blocks[first]
        stop, size = first + 1, start.size
        while stop < len(self.blocks) and size + self.blocks[stop].size <= max_bytes:
            size += self.blocks[stop].size
            stop += 1
        return BlockSpan(first, stop, start.position, size)

    def next_offset(self, span: BlockSpan) -> int:
        """Return the offset to continue from: one more than the last offset that a span covers."""
        if span.stop < len(self.blocks):
            return self.blocks[span.stop].offset
        return self.footer.last_offset + 1

    def expect(
        self, span: BlockSpan, epoch_at: EpochAt | None = None, *, is_thorough: bool = False
    ) -> Expectation:
        """Return the expectation for the bytes of a span.

        Args:
            span: the location of the bytes.
            epoch_at: checks leader epochs where no CRC of a block covers them.
            is_thorough: whether to compute the CRCs of batches even if their blocks have one. This
                detects batches that were damaged before the segment was written.
        """
        blocks = self.blocks[span.first : span.stop]
        ends = [*self._offsets[span.first + 1 : span.stop], self.next_offset(span)]
        extents = [
            ExpectedExtent(block.offset, end, block.position, block.size)
            for block, end in zip(blocks, ends, strict=True)
        ]
        crcs = [block.crc for block in blocks if block.crc is not None]
        return Expectation(
            extents,
            OffsetRule.DENSE if self.is_dense else OffsetRule.SPARSE,
            span.position,
            blocks[0].offset,
            is_exact=self._has_first or span.first > 0,
            epoch_at=None if crcs else epoch_at,
            crcs=crcs,
            is_covered=bool(crcs) and not is_thorough,
            is_atomic=True,
        )

    def open_whole(self, data: Buffer) -> Segment:
        """Check the whole file and return its contents.

        Raises:
            Corrupt: the bytes are not those that were written; none of them may be served.
        """
        if self.times is not None:
            self.times.check_segment(data, data, len(data), self.name)
        segment = verify_segment(data, self.name)
        if (segment.header, segment.footer) != (self.header, self.footer):
            raise Corrupt(f"{self.name}: its header or footer has changed since it was read")
        return segment


def _time(block: SegmentBlock) -> int:
    return _END_OF_TIME if block.max_timestamp is None else block.max_timestamp


def _check_rows(rows: Sequence[tuple[int, ...]], header: SegmentHeader, name: str) -> None:
    if rows[0][0] < header.base_offset:
        raise Corrupt(f"{name}: its index begins before its base offset {header.base_offset}")
    for before, after in pairwise(rows):
        if before[0] >= after[0] or before[1] >= after[1]:
            raise Corrupt(f"{name}: its index has the entry {after} out of order after {before}")
