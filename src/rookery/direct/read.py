"""Reads planned ranges as Arrow: bytes are read ahead, and decoded in the caller's thread.

    rows ──► loads of some MiB, a few at a time ──► whole batches with final offsets ──► columns
             (event loop, in its own thread)         (the caller's thread)

All data is checked: every batch by its CRC, and its offsets against the rows. If an object was
deleted because the log was rewritten, the rest of the range is planned again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.state import State
from rookery.direct.blockinglog import LoopThread, SharedLogs, shared
from rookery.direct.pins import compacted_since
from rookery.direct.place import ClusterAddress
from rookery.direct.plan import Gap, PlannedRange, ReadPlanner
from rookery.errors import Conflict, Corrupt
from rookery.formats.keys import object_key
from rookery.log.maintain.refine import RefinedRow, refine
from rookery.log.origin import Handles
from rookery.log.read.files import MissingJournal
from rookery.log.read.objects import EntryReader
from rookery.log.read.runs import body, expect_body
from rookery.records.columns import decode
from rookery.records.expectation import Expectation, OffsetRule
from rookery.records.kernel import Buffer
from rookery.records.reading import PartitionBatches, ReadSettings
from rookery.records.scan import Scanner, corrupt

_LOAD_BYTES: Final = 8 * 1024 * 1024
_LOAD_ROWS: Final = 2_000
_LOADS_AHEAD: Final = 3
_PLANS: Final = 10
_MARKER: Final = 2  # of an aborted transaction


OnGaps = Callable[[Sequence[Gap]], object]
"""Called with offsets that no longer exist; can raise an error that ends the read."""


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
    """Reads planned ranges for synchronous callers, without the cluster log if possible."""

    def __init__(self, place: ClusterAddress) -> None:
        """Open the store, and the cluster log for payloads stored in it.

        Raises:
            ConfigError, Unavailable: as `Handles`.
        """
        self._place = place
        self._thread = LoopThread("rookery-read")
        # Holds only the names of the segments that are read, taken from the planned ranges.
        self._known = State()
        try:
            self._handles, self._read = self._thread.run(self._open())
        except BaseException:
            self._thread.close()
            raise

    async def _open(self) -> tuple[Handles, EntryReader]:
        origin = self._place.origin()
        origin.check_there(with_log=True)
        handles = Handles(origin)
        places = handles.places(lambda: self._known)
        return handles, EntryReader(handles.cluster_log, places.read)

    def close(self) -> None:
        """Close all handles."""
        try:
            self._thread.run(self._handles.close())
        finally:
            self._thread.close()

    def finish(self) -> LoopThread:
        """Start closing all handles at process exit; return the thread that closes them."""
        self._thread.finish(self._handles.close())
        return self._thread

    def columns(
        self, ranges: Sequence[PlannedRange], reading: ReadSettings, when_gone: OnGaps
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of ranges as columns, one range after another.

        Raises:
            Corrupt: the bytes differ from those that were written.
            Conflict: the log changes faster than it can be read.
            Unavailable: the store or the cluster log cannot be reached.
        """
        return decode(self.fetched(ranges, when_gone), reading)

    def fetched(
        self, ranges: Sequence[PlannedRange], when_gone: OnGaps
    ) -> Iterator[PartitionBatches]:
        """Yield the batches of ranges with their final offsets, not yet decoded."""
        for one in ranges:
            yield from self._range(one, when_gone)

    def _range(self, wanted: PlannedRange, when_gone: OnGaps) -> Iterator[PartitionBatches]:
        """Yield a range; plan the rest again if an object is missing."""
        rest: PlannedRange | None = wanted
        for _ in range(_PLANS):
            if rest is None:
                return
            position = rest.begin
            try:
                for data, end in self._batches(rest):
                    if len(data):
                        aborted = [one for one in rest.aborted if one[_MARKER] >= position]
                        yield PartitionBatches(
                            rest.topic, rest.partition, data, rest.begin, rest.end, aborted
                        )
                    position = max(position, end)
            except MissingJournal:
                rest = plan_again(self._place, rest, position, when_gone)
            else:
                return
        raise Conflict(
            f"{wanted.topic}-{wanted.partition}: objects were gone {_PLANS} times after they had "
            "been planned for; run rookery fsck"
        )

    def _batches(self, one: PlannedRange) -> Iterator[tuple[Buffer, int]]:
        """Yield whole batches, with the offset after them."""
        self._known.objects.segments.update(one.segments)
        scanner: Scanner | None = None
        for loaded in self._thread.iterate(lambda: self._loads(one)):
            if loaded.segment is None:
                for data in loaded.data:
                    yield data, loaded.begin
            else:
                scanner = scanner or Scanner(_expect(one, loaded.segment))
                for found in scanner.feed(loaded.data[0]):
                    if found.damage is not None:
                        raise corrupt(found.damage, f"segment {loaded.segment.object_id}")
                    yield found.sound, found.next_offset
                scanner = None if loaded.is_last else scanner
            if loaded.is_last:
                yield b"", loaded.end  # everything was consumed by now

    async def _loads(self, one: PlannedRange) -> AsyncIterator[LoadedRange]:
        """Read a range, a few loads ahead of the consumer."""
        partition = _stand_in(one)
        under_way: deque[asyncio.Task[LoadedRange]] = deque()
        try:
            for load in _cut(one.rows):
                under_way.append(asyncio.create_task(self._load(one, partition, load)))
                if len(under_way) > _LOADS_AHEAD:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _load(self, wanted: PlannedRange, partition: Partition, load: _Load) -> LoadedRange:
        first, last = load.rows[0], load.rows[-1]
        if first.is_segment:
            data = await self._read.read(first.object_id, load.position, load.size)
            if len(data) != load.size:
                raise Corrupt(
                    f"segment {first.object_id}: ends {load.size - len(data)} bytes too soon"
                )
            return LoadedRange([data], first.base_offset, last.end_offset, first, load.is_last)
        refined = [RefinedRow(partition, row) for row in load.rows]
        await refine(refined, self._read.read)
        for one in refined:
            if isinstance(one.error, Corrupt):
                raise _located(wanted, one.row, one.error) from one.error
            if one.error is not None:
                raise one.error
        data_parts = [part for one in refined for part in _joined(one.parts)]
        return LoadedRange(data_parts, first.base_offset, last.end_offset)


def _expect(one: PlannedRange, row: Row) -> Expectation:
    """Expect the batches of a segment; the decoder verifies their CRCs."""
    # Only compaction leaves gaps.
    is_dense = row.base_offset >= one.cleaned_to
    expected = expect_body(row, OffsetRule.DENSE if is_dense else OffsetRule.SPARSE)
    return expected._replace(is_covered=True)


def _located(wanted: PlannedRange, row: Row, error: Corrupt) -> Corrupt:
    """Add the name of the object to an error about a damaged row."""
    key = object_key(row.object_id) if row.object_id > 0 else f"entry {-row.object_id}"
    return Corrupt(
        f"{wanted.topic}-{wanted.partition} from offset {row.base_offset} on: {key}, {error}; "
        "`rookery fsck` tells what else is damaged"
    )


def plan_again(
    place: ClusterAddress, one: PlannedRange, begin: int, when_gone: OnGaps, end: int | None = None
) -> PlannedRange | None:
    """Replan a range with the cluster log, from an offset to its end or another; None if empty.

    Offsets that were compacted since the range was planned count as missing, too: the records
    already read and those to come would not form a consistent snapshot.
    """
    log = shared(place)
    wanted = one.offsets._replace(begin=begin, end=one.end if end is None else end)

    async def plan() -> tuple[list[PlannedRange], list[Gap]]:
        planner = ReadPlanner(log.log, is_committed=one.is_committed)
        return await planner.plan([wanted]), planner.gaps

    async def again() -> tuple[list[PlannedRange], list[Gap]]:
        await log.log.barrier()
        return await log.log.plan(plan)

    found, gaps = log.run(again())
    # Without a cluster log, the progress of compaction is unknown.
    if not place.is_listed and (gap := compacted_since(log.log.state, wanted, one.cleaned_to)):
        gaps.append(gap)
    if gaps:
        when_gone(gaps)
    return found[0] if found else None


_READERS: SharedLogs[RangeReader] = SharedLogs(RangeReader, RangeReader.finish)


def reader(place: ClusterAddress) -> RangeReader:
    """Return this process's reader of a place; it stays open until the process exits."""
    return _READERS.get(place)


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


def _joined(parts: list[Buffer]) -> list[Buffer]:
    """Join the head of every batch with its body, if they are separate."""
    return parts if len(parts) == 1 else [b"".join(parts)]


def _stand_in(one: PlannedRange) -> Partition:
    """Return a partition with the attributes that the checks of its rows need."""
    partition = Partition(one.partition)
    partition.epochs = list(one.epochs)
    partition.cleaned_to = one.cleaned_to
    return partition
