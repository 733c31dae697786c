"""Converts rows to final bytes with their offsets, leader epochs and times.

    rows ──► reads (nearby rows are read together) ──► every batch checked by its CRC, and
    against its row ──► stamped in place ──► bytes for a merged object or a segment

Damaged bytes are never copied, because a copy would look valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Error
from rookery.log.read.files import MissingObject
from rookery.log.read.runs import MOST_OFFSETS, expect_row, gap
from rookery.log.write import markers
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.records.policy import rewrite
from rookery.records.scan import corrupt
from rookery.store.port import NotFound

Read = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size) of journals, entries and the store."""

# A request takes as much time as reading this number of additional bytes.
_GAP_BYTES: Final = 128 * 1024
_READ_BYTES: Final = 8 * 1024 * 1024
_READS_AT_ONCE: Final = 4
# Smaller batches are copied: sending many small parts to a store is slower than a copy.
_COPY_BELOW: Final = 8 * 1024


@dataclass(slots=True)
class RefinedRow:
    """One row that is being converted: its source and its result."""

    partition: Partition
    row: Row
    size: int = 0
    """The size of its final bytes."""
    parts: list[Buffer] = field(default_factory=list)
    """Its final bytes in consecutive parts; empty if there is an error."""
    error: Error | None = None
    """Why it cannot be used."""

    @property
    def is_damaged(self) -> bool:
        """Whether the bytes are missing or wrong, so that a retry cannot succeed."""
        return isinstance(self.error, Corrupt | MissingObject | NotFound)

    def batches(self) -> Iterator[Sequence[Buffer]]:
        """Yield every batch, in parts."""
        if len(self.parts) > 1:
            yield from zip(self.parts[::2], self.parts[1::2], strict=True)
            return
        for _, batch in batches.split(self.parts[0]):
            yield (batch,)

    def finish(self, parts: list[Buffer], size: int) -> None:
        """Set the final bytes: the whole row in one part, or two parts for every batch."""
        self.parts, self.size = parts, size


class _Chunk(NamedTuple):
    """Rows that are read together, and the byte range from the first to the last."""

    object_id: int
    position: int
    size: int
    rows: list[RefinedRow]


async def refine(rows: Sequence[RefinedRow], read: Read) -> None:
    """Convert the bytes of all rows to their final form; a row that fails has an error."""
    for row in rows:
        if not row.row.object_id:
            data = _make_bytes(row.partition, row.row)
            row.finish([data], len(data))
    chunks = _chunks([row for row in rows if row.row.object_id])

    async def work() -> None:
        for chunk in chunks:
            await _refine_chunk(chunk, read)

    # All tasks share one iterator, which bounds the number of chunks in memory.
    async with asyncio.TaskGroup() as group:
        for _ in range(_READS_AT_ONCE):
            group.create_task(work())


async def _refine_chunk(chunk: _Chunk, read: Read) -> None:
    try:
        data = await read(chunk.object_id, chunk.position, chunk.size)
    except Error as error:
        if len(chunk.rows) == 1:
            chunk.rows[0].error = error
            return
        # Damage in one row must not affect its neighbours.
        for row in chunk.rows:
            await _refine_chunk(_single(row), read)
        return
    view = memoryview(data)
    # A view of a row keeps all bytes that were read with it in memory.
    is_dense = sum(row.row.size for row in chunk.rows) * 2 >= chunk.size
    for row in chunk.rows:
        at = row.row.position - chunk.position
        _refine_row(row, view[at : at + row.row.size], may_keep=is_dense)


def _refine_row(refined: RefinedRow, view: memoryview, *, may_keep: bool) -> None:
    # Leader epochs are not checked: the state knows them, and they are rewritten.
    scan = rewrite(view, expect_row(refined.partition, refined.row))
    if scan.damage is not None:
        refined.error = corrupt(scan.damage)
        return
    headers = scan.headers
    epochs = _epochs(refined, headers)
    may_keep = may_keep and len(view) >= _COPY_BELOW * len(headers)
    if refined.row.is_final and [header.partition_leader_epoch for header in headers] == epochs:
        refined.finish([view if may_keep else bytes(view)], len(view))
    elif may_keep:
        refined.finish(_around(refined.row, view, headers, epochs), len(view))
    else:
        refined.finish([_within(refined.row, bytearray(view), headers, epochs)], len(view))


def _epochs(refined: RefinedRow, headers: list[BatchHeader]) -> list[int]:
    """Return the leader epoch of each batch; nearly always all batches have the same one."""
    partition, row = refined.partition, refined.row
    epoch = partition.epoch_at(row.base_offset)
    if epoch == partition.epoch_at(row.end_offset - 1):
        return [epoch] * len(headers)
    return [partition.epoch_at(header.base_offset) for header in headers]


def _around(
    row: Row, view: memoryview, headers: list[BatchHeader], epochs: list[int]
) -> list[Buffer]:
    """Put new headers before the rest of each batch, which is not copied."""
    parts: list[Buffer] = []
    is_append_time = row.is_append_time
    for header, epoch in zip(headers, epochs, strict=True):
        if is_append_time:
            parts += batches.restamp(view, _set_append_time(header, row, epoch))
        else:
            parts += batches.stamp(view[header.position : header.end], header.base_offset, epoch)
    return parts


def _within(row: Row, data: bytearray, headers: list[BatchHeader], epochs: list[int]) -> bytearray:
    """Write the new headers into a copy."""
    is_append_time = row.is_append_time
    for header, epoch in zip(headers, epochs, strict=True):
        if is_append_time:
            batches.restamp_into(data, _set_append_time(header, row, epoch))
        else:
            batches.stamp_into(data, header.base_offset, epoch, header.position)
    return data


def _set_append_time(header: BatchHeader, row: Row, epoch: int) -> BatchHeader:
    """Return the header of a batch whose time is that of its commit."""
    return header.with_append_time(row.max_timestamp)._replace(partition_leader_epoch=epoch)


def _chunks(rows: list[RefinedRow]) -> Iterator[_Chunk]:
    """Group rows that are close together in one object."""
    chunk: _Chunk | None = None
    for row in sorted(rows, key=_order):
        size = row.row.position + row.row.size - chunk.position if chunk else 0
        if chunk and _is_near(chunk, row.row) and size <= _READ_BYTES:
            chunk = chunk._replace(size=size)
            chunk.rows.append(row)
            continue
        if chunk:
            yield chunk
        chunk = _single(row)
    if chunk:
        yield chunk


def _order(refined: RefinedRow) -> tuple[bool, int, int]:
    """Sort by position in every object, and by entry: the ids of entries are negative."""
    object_id = refined.row.object_id
    return object_id > 0, abs(object_id), refined.row.position


def _is_near(chunk: _Chunk, row: Row) -> bool:
    gap = row.position - chunk.position - chunk.size
    return chunk.object_id == row.object_id and 0 <= gap <= _GAP_BYTES


def _single(refined: RefinedRow) -> _Chunk:
    return _Chunk(refined.row.object_id, refined.row.position, refined.row.size, [refined])


def _make_bytes(partition: Partition, row: Row) -> bytes | bytearray:
    """Generate the bytes of a row that has no object."""
    if not row.is_marker:
        return _gap(partition, row)
    return markers.stamp_marker(partition, row)


def _gap(partition: Partition, row: Row) -> bytes:
    """Generate batches without records for offsets whose bytes are lost."""
    parts = []
    for base in range(row.base_offset, row.end_offset, MOST_OFFSETS):
        end = min(row.end_offset, base + MOST_OFFSETS)
        batch = bytearray(gap(base, end, row.max_timestamp))
        batches.stamp_into(batch, base, partition.epoch_at(base))
        parts.append(batch)
    return b"".join(parts)
