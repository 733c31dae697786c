"""Reads planned ranges as Arrow, for synchronous callers and without the cluster log if possible.

    loads (event loop, in its own thread) ──► batches ──► columns (the caller's thread)

`log/read/rangereader` loads and checks the bytes. If an object was deleted because the log was
rewritten, the rest of the range is planned again, which needs the cluster log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa

from rookery.cluster.state.state import State
from rookery.direct.blockinglog import LoopThread, SharedLogs, open_shared
from rookery.direct.pins import find_compacted
from rookery.direct.place import ClusterAddress
from rookery.errors import Conflict
from rookery.log.origin import Handles
from rookery.log.read.files import MissingObject
from rookery.log.read.objects import EntryReader
from rookery.log.read.rangeplan import Gap, PlannedRange, ReadPlanner
from rookery.log.read.rangereader import RangeReader, stitch
from rookery.records.columns import decode
from rookery.records.kernel import Buffer
from rookery.records.reading import PartitionBatches, ReadSettings

_PLANS: Final = 10
_MARKER: Final = 2  # of an aborted transaction


OnGaps = Callable[[Sequence[Gap]], object]
"""Called with offsets that no longer exist; can raise an error that ends the read."""


class BlockingReader:
    """Reads planned ranges on its own event loop, for synchronous callers."""

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
            self._handles, self._ranges = self._thread.run(self._open())
        except BaseException:
            self._thread.close()
            raise

    async def _open(self) -> tuple[Handles, RangeReader]:
        origin = self._place.origin()
        origin.check_there(with_log=True)
        handles = Handles(origin)
        places = handles.places(lambda: self._known)
        entries = EntryReader(handles.cluster_log, places.read)
        return handles, RangeReader(entries.read)

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
        return decode(self.fetch(ranges, when_gone), reading)

    def fetch(
        self, ranges: Sequence[PlannedRange], when_gone: OnGaps
    ) -> Iterator[PartitionBatches]:
        """Yield the batches of ranges with their final offsets, not yet decoded."""
        for planned in ranges:
            yield from self._range(planned, when_gone)

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
                        aborted = [txn for txn in rest.aborted if txn[_MARKER] >= position]
                        yield PartitionBatches(
                            rest.topic, rest.partition, data, rest.begin, rest.end, aborted
                        )
                    position = max(position, end)
            except MissingObject:
                rest = plan_again(self._place, rest, position, when_gone)
            else:
                return
        raise Conflict(
            f"{wanted.topic}-{wanted.partition}: objects were gone {_PLANS} times after they had "
            "been planned for; run rookery fsck"
        )

    def _batches(self, planned: PlannedRange) -> Iterator[tuple[Buffer, int]]:
        """Yield whole batches, with the offset up to which the range is consumed."""
        self._known.objects.segments.update(planned.segments)
        # Closed here: the traceback of an error keeps the iterator alive longer than the loop.
        with closing(self._thread.iterate(lambda: self._ranges.loads(planned))) as loads:
            yield from stitch(planned, loads)


def plan_again(
    place: ClusterAddress,
    planned: PlannedRange,
    begin: int,
    when_gone: OnGaps,
    end: int | None = None,
) -> PlannedRange | None:
    """Replan a range with the cluster log, from an offset to its end or another; None if empty.

    Offsets that were compacted since the range was planned count as missing, too: the records
    already read and those to come would not form a consistent snapshot.
    """
    log = open_shared(place)
    wanted = planned.offsets._replace(begin=begin, end=planned.end if end is None else end)

    async def plan() -> tuple[list[PlannedRange], list[Gap]]:
        planner = ReadPlanner(log.log, is_committed=planned.is_committed)
        return await planner.plan([wanted]), planner.gaps

    async def again() -> tuple[list[PlannedRange], list[Gap]]:
        await log.log.barrier()
        return await log.log.plan(plan)

    ranges, gaps = log.run(again())
    # Without a cluster log, the progress of compaction is unknown.
    if not place.is_listed and (gap := find_compacted(log.log.state, wanted, planned.cleaned_to)):
        gaps.append(gap)
    if gaps:
        when_gone(gaps)
    return ranges[0] if ranges else None


_READERS: SharedLogs[BlockingReader] = SharedLogs(BlockingReader, BlockingReader.finish)


def reader(place: ClusterAddress) -> BlockingReader:
    """Return this process's reader of a place; it stays open until the process exits."""
    return _READERS.get(place)
