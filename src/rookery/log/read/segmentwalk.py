"""Derives the layout of a segment without index and times file by reading all of it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from rookery.errors import Corrupt
from rookery.formats.layout import SegmentBlock, SegmentLayout
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    IndexBuilder,
    SegmentFooter,
    SegmentHeader,
    expect_body,
    parse_footer,
    parse_header,
)
from rookery.log.read.runs import batches_of
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import OffsetRule
from rookery.records.scan import Scan
from rookery.wire.buffer import Buffer

Read = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size) of committed bytes."""

_STEP_BYTES: Final = 4 * 1024 * 1024
# One block of this size represents all bytes after damage: a reader of it detects the damage.
_DAMAGE_BYTES: Final = 64 * 1024


async def lay_out(read: Read, object_id: int, size: int, name: str) -> SegmentLayout:
    """Derive the layout of a segment of this size.

    Raises:
        Corrupt: its header or footer is invalid, or it is too short.
        MissingObject, Unavailable: as `read`.
    """
    header = parse_header(await read(object_id, 0, HEADER_BYTES), name)
    footer = parse_footer(await read(object_id, size - FOOTER_BYTES, FOOTER_BYTES), name)
    walk = _Walk(header, footer)
    expected = expect_body(header, footer, size - HEADER_BYTES - FOOTER_BYTES)
    # Offsets can be trusted only after the CRC of all batches is known, so they are not checked
    # here.
    framed = expected._replace(rule=OffsetRule.UNCHECKED, is_covered=True)
    position = expected.position
    async for scan in batches_of(partial(read, object_id), framed, _STEP_BYTES):
        walk.add(position, scan)
        position += scan.end
        if scan.damage is not None:
            walk.damage(position, expected.end)
    is_whole = position == expected.end
    layout = SegmentLayout(name, (header, footer), walk.blocks(is_whole=is_whole))
    if not layout.is_dense and any(block.crc is None for block in layout.blocks):
        # Where offsets are missing, only a checksum can prove that the others are right.
        raise Corrupt(f"{name}: is damaged, and only its lost times file could say where")
    return layout


class _Walk:
    """The blocks of the part of a segment that was read so far."""

    def __init__(self, header: SegmentHeader, footer: SegmentFooter) -> None:
        self._footer = footer
        self._next_offset = header.base_offset
        self._builder = IndexBuilder()
        self._blocks: list[SegmentBlock] = []
        self._crc = 0

    def add(self, position: int, scan: Scan) -> None:
        """Add batches that begin at this position of the segment."""
        for header in scan.headers:
            data = scan.data[header.position : header.end]
            self._add(header, position + header.position, data)
        self._crc = checksum(scan.sound, self._crc)

    def damage(self, position: int, end: int) -> None:
        """Add one block that represents all bytes after damage."""
        size = min(end - position, _DAMAGE_BYTES)
        self._blocks.append(SegmentBlock(self._next_offset, position, size, None, None))

    def blocks(self, *, is_whole: bool) -> list[SegmentBlock]:
        """Return the blocks; if the segment is intact, each with a valid checksum."""
        if is_whole and self._crc == self._footer.crc:
            return self._blocks
        return [block._replace(max_timestamp=None, crc=None) for block in self._blocks]

    def _add(self, header: BatchHeader, position: int, data: memoryview) -> None:
        self._next_offset = max(self._next_offset, header.last_offset + 1)
        if self._builder.add(header, position):
            offset = header.base_offset
            block = SegmentBlock(
                offset, position, header.size, header.max_timestamp, checksum(data)
            )
            self._blocks.append(block)
            return
        last = self._blocks[-1]
        self._blocks[-1] = last._replace(
            size=last.size + header.size,
            max_timestamp=max(last.max_timestamp or 0, header.max_timestamp),
            crc=checksum(data, last.crc or 0),
        )
