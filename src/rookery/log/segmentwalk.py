"""Finds the batches of a segment without the files beside it: by reading all of it once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rookery.errors import Corrupt
from rookery.formats.index import IndexBuilder
from rookery.formats.layout import Block, Layout
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
)
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer

Read = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size) of what is committed."""

_STEP_BYTES: Final = 4 * 1024 * 1024
# Of what lies behind damage so much stands for all of it: it is read to find it damaged.
_DAMAGE_BYTES: Final = 64 * 1024


async def walk(read: Read, object_id: int, size: int, name: str) -> Layout:
    """Lay out a segment of this size.

    Raises:
        Corrupt: it does not begin or end as a segment does, or is too short.
        Missing, Unavailable: as `read`.
    """
    header = parse_header(await read(object_id, 0, HEADER_BYTES), name)
    footer = parse_footer(await read(object_id, size - FOOTER_BYTES, FOOTER_BYTES), name)
    found = _Walk(header, footer)
    position, end = HEADER_BYTES, size - FOOTER_BYTES
    step = _STEP_BYTES
    while position < end:
        data = await read(object_id, position, min(step, end - position))
        length = found.add(position, data)
        if not length:
            needed = _needed(data, end - position)
            if needed is None:
                found.damage(position, end)
                break
            step = needed
            continue
        position, step = position + length, _STEP_BYTES
    layout = Layout(name, (header, footer), found.blocks(is_whole=position == end))
    if not layout.is_dense and any(block.crc is None for block in layout.blocks):
        # Where offsets are missing, only a checksum can tell that the others are right.
        raise Corrupt(f"{name}: is damaged, and without its times file nobody can tell where")
    return layout


class _Walk:
    """The blocks of a segment, as far as it was walked."""

    def __init__(self, header: SegmentHeader, footer: SegmentFooter) -> None:
        self._footer = footer
        self._next_offset = header.base_offset
        self._builder = IndexBuilder()
        self._blocks: list[Block] = []
        self._crc = 0

    def add(self, position: int, data: Buffer) -> int:
        """Take the whole batches of a piece; return how many bytes they are."""
        headers = batches.outline(data)
        view = memoryview(data)
        for header in headers:
            self._add(header, position + header.position, view[header.position : header.end])
        length = headers[-1].end if headers else 0
        self._crc = checksum(view[:length], self._crc)
        return length

    def damage(self, position: int, end: int) -> None:
        """Let one block stand for all that lies behind damage."""
        size = min(end - position, _DAMAGE_BYTES)
        self._blocks.append(Block(self._next_offset, position, size, None, None))

    def blocks(self, *, is_whole: bool) -> list[Block]:
        """Return the blocks; if the segment is sound, each with a checksum to trust."""
        if is_whole and self._crc == self._footer.crc:
            return self._blocks
        return [block._replace(max_timestamp=None, crc=None) for block in self._blocks]

    def _add(self, header: BatchHeader, position: int, data: memoryview) -> None:
        self._next_offset = max(self._next_offset, header.last_offset + 1)
        if self._builder.add(header, position):
            offset = header.base_offset
            block = Block(offset, position, header.size, header.max_timestamp, checksum(data))
            self._blocks.append(block)
            return
        last = self._blocks[-1]
        self._blocks[-1] = last._replace(
            size=last.size + header.size,
            max_timestamp=max(last.max_timestamp or 0, header.max_timestamp),
            crc=checksum(data, last.crc or 0),
        )


def _needed(data: Buffer, left: int) -> int | None:
    """Return how long the first batch is, if that can be; None if it is damaged."""
    if len(data) < batches.HEADER_SIZE:
        return None
    header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
    return header.size if len(data) < header.size <= left else None
