"""Checks every byte of a segment and of its index files, in pieces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from rookery.errors import Corrupt
from rookery.formats.keys import index_key, times_key
from rookery.formats.layout import BlockSpan, SegmentLayout
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    parse_footer,
    parse_header,
    parse_index,
)
from rookery.formats.times import Times, parse_times
from rookery.log.check.fault import FaultKind, FaultRange, LogFault
from rookery.log.check.progress import Progress
from rookery.records.crc import checksum
from rookery.records.policy import examine
from rookery.records.scan import BatchDamage

_STEP_BYTES: Final = 4 * 1024 * 1024

Read = Callable[[int, int], Awaitable[bytes]]
"""Reads (position, size) of the segment."""


class SegmentCheck:
    """The check of one segment."""

    def __init__(
        self, key: str, where: FaultRange, size: int, read: Read, progress: Progress
    ) -> None:
        self._key = key
        self._where = where
        self._size = size
        self._read = read
        self._progress = progress
        self._crc = 0

    async def run(self, index: bytes | None, times: bytes | None) -> AsyncIterator[LogFault]:
        """Yield every fault, except missing files, which the caller reports."""
        parsed = None
        if times is not None:
            try:
                parsed = self._times(times)
            except Corrupt as error:
                yield self._fault(times_key(self._key), str(error))
        if index is not None and parsed is not None:
            try:
                parsed.check_index(index, "the index")
            except Corrupt as error:
                yield self._fault(index_key(self._key), str(error))
                index = None
        try:
            layout = await self._layout(parsed, index)
        except Corrupt as error:
            yield self._fault(self._key, str(error))
            return
        async for fault in self._blocks(layout):
            yield fault

    def _times(self, data: bytes) -> Times:
        times = parse_times(data, "the times file")
        times.check_key(self._key)
        return times

    async def _layout(self, times: Times | None, index: bytes | None) -> SegmentLayout:
        first = await self._read(0, HEADER_BYTES)
        last = await self._read(self._size - FOOTER_BYTES, FOOTER_BYTES)
        if times is not None:
            times.check_segment(first, last, self._size, "the segment")
            layout = SegmentLayout.from_times(times, "the segment")
        elif index is not None:
            ends = parse_header(first, "the header"), parse_footer(last, "the footer")
            parsed = parse_index(index, "the index")
            layout = SegmentLayout.from_index(parsed, *ends, self._size, "the segment")
        else:
            raise Corrupt("neither the times file nor the index can be used, so it is not checked")
        has = (layout.header.base_offset, layout.footer.last_offset + 1)
        if has != self._where[2:]:
            raise Corrupt(f"it holds the offsets {has[0]} to {has[1]}, the cluster log differs")
        return layout

    async def _blocks(self, layout: SegmentLayout) -> AsyncIterator[LogFault]:
        first, is_sound = 0, True
        while first < len(layout.blocks):
            span = layout.span(first, _STEP_BYTES)
            data = await self._read(span.position, span.size)
            self._crc = checksum(data, self._crc)
            records = 0
            for scan in examine(data, layout.expect(span, is_thorough=True)):
                records += scan.record_count
                if scan.damage is not None:
                    is_sound = False
                    yield self._make_fault(layout, span, scan.damage)
            self._progress(span.size, records)
            first = span.stop
        if is_sound and self._crc != layout.footer.crc:
            yield self._fault(self._key, "the CRC-32C in its footer is not that of its batches")

    def _make_fault(self, layout: SegmentLayout, span: BlockSpan, damage: BatchDamage) -> LogFault:
        """Return the fault of a damaged block."""
        blocks = layout.blocks[span.first : span.stop]
        at = bisect_right(blocks, damage.position, key=lambda block: block.position) - 1
        block_span = layout.span(span.first + at, 0)
        offsets = (blocks[at].offset, layout.next_offset(block_span))
        where = self._where._replace(base_offset=offsets[0], end_offset=offsets[1])
        return LogFault(FaultKind.CORRUPT, self._key, damage.text, where)

    def _fault(self, key: str, text: str) -> LogFault:
        return LogFault(FaultKind.CORRUPT, key, text, self._where)
