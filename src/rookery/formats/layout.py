"""How a segment is read in part: which bytes to ask for, and what must hold for them.

A segment is read in blocks, the runs of batches between two index entries. With its times file,
every byte of a block is covered by the block's CRC. Without (KafScale writes none), a batch's own
CRC leaves out its first 16 bytes: length and offsets are then checked against the index, and
against each other where the segment has no gaps. What is left open in that case are leader epochs,
and, where records are missing, offsets within the gap: `verify_segment` on the whole file checks
those too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.formats.index import Index
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Segment,
    SegmentFooter,
    SegmentHeader,
    check_ends,
    check_offsets,
    outline_batches,
    verify_batches,
    verify_segment,
)
from rookery.formats.times import Times
from rookery.records.batch import BatchHeader
from rookery.records.crc import checksum
from rookery.records.kernel import Buffer

_END_OF_TIME: Final = (1 << 63) - 1


class Block(NamedTuple):
    """A run of batches that can be read and checked alone."""

    offset: int
    position: int
    size: int
    max_timestamp: int | None
    """The highest time in it; None if that is not known."""
    crc: int | None


class Span(NamedTuple):
    """Whole blocks, one behind the other: the bytes to read."""

    first: int
    stop: int
    """One more than the last block's index."""
    position: int
    size: int


class Layout:
    """Where the batches of one segment lie."""

    def __init__(
        self,
        name: str,
        ends: tuple[SegmentHeader, SegmentFooter],
        blocks: Sequence[Block],
        times: Times | None = None,
    ) -> None:
        """Use `from_times` or `from_index` instead."""
        self.name = name
        self.header, self.footer = ends
        self.blocks = blocks
        self.times = times
        self._offsets = [block.offset for block in blocks]
        self._times = [_time(block) for block in blocks]

    @classmethod
    def from_times(cls, times: Times, name: str) -> Layout:
        """Lay out a segment by its times file, which is enough; the name is for errors."""
        ends = [block.position for block in times.blocks[1:]] + [times.size - FOOTER_BYTES]
        blocks = [
            Block(one.offset, one.position, end - one.position, one.max_timestamp, one.crc)
            for one, end in zip(times.blocks, ends, strict=False)
        ]
        return cls(name, (times.header, times.footer), blocks, times)

    @classmethod
    def from_index(
        cls, index: Index, header: SegmentHeader, footer: SegmentFooter, size: int, name: str
    ) -> Layout:
        """Lay out a segment that has no times file, by its index and both of its ends.

        Raises:
            Corrupt: the index and the segment's ends do not fit each other.
        """
        check_ends(header, footer, name)
        rows = [tuple(entry) for entry in index.entries]
        if size > HEADER_BYTES + FOOTER_BYTES and (not rows or rows[0][1] > HEADER_BYTES):
            rows.insert(0, (header.base_offset, HEADER_BYTES))
        rows.append((footer.last_offset + 1, size - FOOTER_BYTES))
        _check_rows(rows, header, name)
        blocks = [
            Block(offset, position, after - position, None, None)
            for (offset, position), (_, after) in pairwise(rows)
        ]
        return cls(name, (header, footer), blocks)

    @property
    def is_dense(self) -> bool:
        """Whether the segment has a record at every offset."""
        offsets = self.footer.last_offset - self.header.base_offset + 1
        return self.header.message_count == offsets

    def find(self, offset: int, max_bytes: int) -> Span | None:
        """Return the blocks to read from an offset on: one at least, more if they fit.

        Batches before the offset may come first, and it may lie in a gap: then what is asked for
        begins behind it. None if the segment has no batches.
        """
        if not self.blocks:
            return None
        first = max(bisect_right(self._offsets, offset) - 1, 0)
        return self.span(first, max_bytes)

    def find_time(self, time_ms: int, max_bytes: int, *, start: int = 0) -> Span | None:
        """Return the blocks to read for the first record that is not older than a time.

        None if all are older. Without a times file that may be any record. The highest time of a
        block may be a marker's, or lie before the log's start: then look again behind it.

        Args:
            time_ms: the time.
            max_bytes: more blocks follow the first if they fit.
            start: the index of the block to begin with.
        """
        for first in range(start, len(self.blocks)):
            if self._times[first] >= time_ms:
                return self.span(first, max_bytes)
        return None

    def span(self, first: int, max_bytes: int) -> Span:
        """Return the block of this index, and those behind it that fit."""
        start = self.blocks[first]
        stop, size = first + 1, start.size
        while stop < len(self.blocks) and size + self.blocks[stop].size <= max_bytes:
            size += self.blocks[stop].size
            stop += 1
        return Span(first, stop, start.position, size)

    def next_offset(self, span: Span) -> int:
        """Return the offset to go on from: one more than the last that a span stands for."""
        if span.stop < len(self.blocks):
            return self.blocks[span.stop].offset
        return self.footer.last_offset + 1

    def open(self, span: Span, data: Buffer, *, is_thorough: bool = False) -> list[BatchHeader]:
        """Check what was read of a span, and return its batches, positioned within the data.

        Args:
            span: where it was read.
            data: what was read there.
            is_thorough: whether to look at the batches' own CRCs also where their blocks have one,
                which tells that the bytes are those that were written.

        Raises:
            Corrupt: the bytes are not what was written; none of them may be served.
        """
        if len(data) != span.size:
            raise Corrupt(
                f"{self.name}: {len(data)} bytes came from {span.position} on, not {span.size}"
            )
        blocks = self.blocks[span.first : span.stop]
        self._check_crcs(blocks, span, data)
        are_covered = blocks[0].crc is not None and not is_thorough
        look = outline_batches if are_covered else verify_batches
        headers = look(data, span.position, self.name)
        self._check_starts(blocks, span, headers)
        self._check_headers(span, headers)
        return headers

    def open_whole(self, data: Buffer) -> Segment:
        """Check the whole file, and return what it holds.

        Raises:
            Corrupt: the bytes are not what was written; none of them may be served.
        """
        if self.times is not None:
            self.times.check_segment(data, data, len(data), self.name)
        segment = verify_segment(data, self.name)
        if (segment.header, segment.footer) != (self.header, self.footer):
            raise Corrupt(f"{self.name}: its header or footer has changed since it was read")
        return segment

    def _check_crcs(self, blocks: Sequence[Block], span: Span, data: Buffer) -> None:
        view = memoryview(data)
        for block in blocks:
            start = block.position - span.position
            if block.crc is not None and checksum(view[start : start + block.size]) != block.crc:
                raise Corrupt(
                    f"{self.name}: the {block.size} bytes from {block.position} on are damaged "
                    "(their CRC-32C is not the one in the times file)"
                )

    def _check_starts(
        self, blocks: Sequence[Block], span: Span, headers: Sequence[BatchHeader]
    ) -> None:
        """Refuse bytes that do not have a batch with the right offset where each block begins."""
        found = {header.position: header.base_offset for header in headers}
        for block in blocks:
            offset = found.get(block.position - span.position)
            if offset != block.offset and not self._is_before_first(block, offset):
                raise Corrupt(
                    f"{self.name}: at byte {block.position} no batch with offset {block.offset} "
                    f"begins, but {'none' if offset is None else offset}"
                )

    def _is_before_first(self, block: Block, offset: int | None) -> bool:
        # An index without an entry for the first batch tells only where offsets begin.
        return offset is not None and block is self.blocks[0] and self.header.base_offset <= offset

    def _check_headers(self, span: Span, headers: Sequence[BatchHeader]) -> None:
        start, last = self.blocks[span.first].offset, self.next_offset(span) - 1
        check_offsets(headers, start, last, self.name)
        if self.is_dense and sum(one.record_count for one in headers) != last - start + 1:
            raise Corrupt(
                f"{self.name}: the bytes from {span.position} on do not hold a record at every "
                f"offset from {start} to {last}"
            )


def _time(block: Block) -> int:
    return _END_OF_TIME if block.max_timestamp is None else block.max_timestamp


def _check_rows(rows: Sequence[tuple[int, ...]], header: SegmentHeader, name: str) -> None:
    if rows[0][0] < header.base_offset:
        raise Corrupt(f"{name}: its index begins before its base offset {header.base_offset}")
    for one, other in pairwise(rows):
        if one[0] >= other[0] or one[1] >= other[1]:
            raise Corrupt(f"{name}: its index has an entry {one} that lies behind {other}")
