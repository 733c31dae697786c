"""Reads the bytes of planned ranges: some loads ahead, checked, and cut into whole batches.

    rows ──► loads of some MiB, a few at a time ──► whole batches with final offsets
             (`RangeReader`, on an event loop)       (`stitch`, in any thread)

All data is checked: every batch by its CRC, and its offsets against the rows. The decoder verifies
the CRCs of a segment's batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt
from rookery.formats.keys import object_key
from rookery.log.maintain.refine import RefinedRow, refine
from rookery.log.read.objects import Read
from rookery.log.read.rangeplan import PlannedRange
from rookery.log.read.runs import body, expect_body
from rookery.records.expectation import Expectation, OffsetRule
from rookery.records.kernel import Buffer
from rookery.records.scan import Scanner, corrupt

_LOAD_BYTES: Final = 8 * 1024 * 1024
_LOAD_ROWS: Final = 2_000
_LOADS_AHEAD: Final = 3


class LoadedRange(NamedTuple):
    """Bytes of a range, with their offsets."""

    data: list[Buffer]
    begin: int
    end: int
    """The end offset of their last row."""
    segment: Row | None = None
    """The segment that contains them: the first and last batch may be incomplete."""
    is_last: bool = True
    """Whether they are its last part."""


class _Load(NamedTuple):
    """One read operation: some rows, or a part of a segment."""

    rows: list[Row]
    position: int
    size: int
    is_last: bool


class RangeReader:
    """Loads the bytes of planned ranges, on one event loop."""

    def __init__(self, read: Read) -> None:
        """Set the source.

        Args:
            read: reads bytes of objects, of journal files and of the payloads of entries.
        """
        self._read = read

    async def loads(self, planned: PlannedRange) -> AsyncIterator[LoadedRange]:
        """Yield the bytes of a range; read a few loads ahead of the consumer.

        Raises:
            MissingObject: an object was deleted because the log was rewritten: plan again.
            Corrupt: the bytes differ from those that were written.
            Unavailable: the store or the cluster log cannot be reached.
        """
        partition = _stand_in(planned)
        under_way: deque[asyncio.Task[LoadedRange]] = deque()
        try:
            for load in _cut(planned.rows):
                under_way.append(asyncio.create_task(self._load(planned, partition, load)))
                if len(under_way) > _LOADS_AHEAD:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _load(self, planned: PlannedRange, partition: Partition, load: _Load) -> LoadedRange:
        first, last = load.rows[0], load.rows[-1]
        if first.is_segment:
            data = await self._read(first.object_id, load.position, load.size)
            if len(data) != load.size:
                raise Corrupt(
                    f"segment {first.object_id}: ends {load.size - len(data)} bytes too soon"
                )
            return LoadedRange([data], first.base_offset, last.end_offset, first, load.is_last)
        refined = [RefinedRow(partition, row) for row in load.rows]
        await refine(refined, self._read)
        for row in refined:
            if isinstance(row.error, Corrupt):
                raise _locate(planned, row.row, row.error) from row.error
            if row.error is not None:
                raise row.error
        parts = [part for row in refined for part in _join(row.parts)]
        return LoadedRange(parts, first.base_offset, last.end_offset)


def stitch(planned: PlannedRange, loads: Iterable[LoadedRange]) -> Iterator[tuple[Buffer, int]]:
    """Yield whole batches, with the offset up to which the range is consumed.

    After the last batch of a row or segment, empty bytes carry the end offset of the row.

    Raises:
        Corrupt: the bytes of a segment differ from those that were written.
    """
    scanner: Scanner | None = None
    for loaded in loads:
        if loaded.segment is None:
            for data in loaded.data:
                yield data, loaded.begin
        else:
            scanner = scanner or Scanner(_expect(planned, loaded.segment))
            for scanned in scanner.feed(loaded.data[0]):
                if scanned.damage is not None:
                    raise corrupt(scanned.damage, f"segment {loaded.segment.object_id}")
                yield scanned.sound, scanned.next_offset
            scanner = None if loaded.is_last else scanner
        if loaded.is_last:
            yield b"", loaded.end  # everything was consumed by now


def _expect(planned: PlannedRange, row: Row) -> Expectation:
    """Expect the batches of a segment; the decoder verifies their CRCs."""
    # Only compaction leaves gaps.
    is_dense = row.base_offset >= planned.cleaned_to
    expected = expect_body(row, OffsetRule.DENSE if is_dense else OffsetRule.SPARSE)
    return expected._replace(is_covered=True)


def _locate(planned: PlannedRange, row: Row, error: Corrupt) -> Corrupt:
    """Add the name of the object to an error about a damaged row."""
    key = object_key(row.object_id) if row.object_id > 0 else f"entry {-row.object_id}"
    return Corrupt(
        f"{planned.topic}-{planned.partition} from offset {row.base_offset} on: {key}, {error}; "
        "run `rookery fsck` to find all damage"
    )


def _cut(rows: Sequence[Row]) -> Iterator[_Load]:
    """Cut rows into read operations."""
    some: list[Row] = []
    size = 0
    for row in rows:
        if some and (row.is_segment or size + row.size > _LOAD_BYTES or len(some) == _LOAD_ROWS):
            yield _Load(some, 0, 0, is_last=True)
            some, size = [], 0
        if row.is_segment:
            begin, end = body(row)
            for position in range(begin, end, _LOAD_BYTES):
                stop = min(position + _LOAD_BYTES, end)
                yield _Load([row], position, stop - position, is_last=stop == end)
        else:
            some.append(row)
            size += row.size
    if some:
        yield _Load(some, 0, 0, is_last=True)


def _join(parts: list[Buffer]) -> list[Buffer]:
    """Join the head of every batch with its body, if they are separate."""
    return parts if len(parts) == 1 else [b"".join(parts)]


def _stand_in(planned: PlannedRange) -> Partition:
    """Return a partition with the attributes that the checks of its rows need."""
    partition = Partition(planned.partition)
    partition.epochs = list(planned.epochs)
    partition.cleaned_to = planned.cleaned_to
    return partition
