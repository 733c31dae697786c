"""Reads rows of a partition as batches in their final form, a few MiB at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Error
from rookery.formats.segment import FOOTER_BYTES, HEADER_BYTES, parse_footer
from rookery.log.maintain.refine import Read, RefinedRow, refine
from rookery.log.read.runs import batches_of, body, expect_body
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import OffsetRule
from rookery.records.scan import corrupt

STRETCH_BYTES: Final = 8 * 1024 * 1024
"""The number of bytes read and examined at a time."""
_STRETCH_ROWS: Final = 10_000


class BatchPiece(NamedTuple):
    """Some whole batches, and their headers with final offsets."""

    data: memoryview
    headers: list[BatchHeader]


class UnreadableRowError(Exception):
    """The bytes of a row are missing, wrong, or cannot be read."""

    def __init__(self, refined: RefinedRow) -> None:
        super().__init__(str(refined.error))
        self.refined = refined


def stretch(partition: Partition, offset: int, until: int, max_bytes: int) -> list[Row]:
    """Return rows that are read together, from an offset on: a segment, or several rows.

    No row begins at `until` or after it. There is one row, or rows of at most `max_bytes`.
    """
    rows: list[Row] = []
    size = 0
    for index in range(partition.row_of(offset), len(partition.base_offsets)):
        row = partition.row(index)
        size += row.size
        is_far = row.base_offset >= until or len(rows) == _STRETCH_ROWS
        if is_far or (rows and (row.is_segment or size > min(max_bytes, STRETCH_BYTES))):
            break
        if row.end_offset > offset:
            rows.append(row)
        if row.is_segment and rows:
            break
    return rows


async def pieces(read: Read, partition: Partition, rows: list[Row]) -> AsyncIterator[BatchPiece]:
    """Read a stretch and check it.

    Raises:
        UnreadableRowError: with the row; the pieces returned before must not be used then.
    """
    if rows[0].is_segment and rows[0].object_id:
        async for piece in _segment(read, partition, rows[0]):
            yield piece
        return
    refined = [RefinedRow(partition, row) for row in rows]
    await refine(refined, read)
    for refined_row in refined:
        if refined_row.error is not None:
            raise UnreadableRowError(refined_row)
    data = memoryview(b"".join(part for refined_row in refined for part in refined_row.parts))
    yield BatchPiece(data, batches.outline(data))


async def _segment(read: Read, partition: Partition, row: Row) -> AsyncIterator[BatchPiece]:
    """Read a whole segment; only the end of the read proves that it is intact."""
    begin, end = body(row)
    crc = 0
    try:
        expected = expect_body(row, OffsetRule.SPARSE)
        async for scan in batches_of(partial(read, row.object_id), expected, STRETCH_BYTES):
            if scan.damage is not None:
                raise corrupt(scan.damage)
            crc = checksum(scan.sound, crc)
            yield BatchPiece(scan.sound, scan.headers)
        footer = parse_footer(await read(row.object_id, end, FOOTER_BYTES))
        # The checksum is over all batches of the file.
        if begin == HEADER_BYTES and crc != footer.crc:
            raise Corrupt("the CRC-32C of its batches is not the one in its footer")
    except Error as error:
        raise UnreadableRowError(RefinedRow(partition, row, error=error)) from error
