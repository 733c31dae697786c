"""Reads extents of a partition: from memory if they are recent, else from their objects.

Every byte is checked against a CRC. Batches that were written before their offsets were known
receive them here. Batches that the caretaker has rewritten already carry them and pass unchanged.

    rows of the partition ──► runs (adjacent extents are read together) ──► views of blocks
                                                                                  │
    parts for the socket ◄── offsets and epochs ◄── CRC, and positions against the rows ◄┘

`SureReader` repeats a read whose bytes were moved meanwhile: it waits for the head of the cluster
log and plans again. A second failure is a real one, and its error names all that is known.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Final, NamedTuple

from rookery import metrics
from rookery.cluster.port import ReadableLog
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Error
from rookery.formats.keys import is_stored
from rookery.formats.layout import SegmentLayout
from rookery.log.read.files import MissingObject
from rookery.log.read.opener import BlockSource, Direct, OpenedRun, Opener, ReadAhead, stamp
from rookery.log.read.runs import FAR, MOST_OFFSETS, ReadMark, ReadRun, body, gap, name, plan
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Key, Tail, TailSlice
from rookery.records.batches import BatchHeader
from rookery.wire.buffer import Buffer

_RUNS_AT_ONCE: Final = 4
_MARKS: Final = 4096


class LogReader:
    """Reads any partition from any offset."""

    def __init__(
        self,
        cluster_log: ReadableLog,
        objects: BlockSource,
        tail: Tail,
        direct: Direct | None = None,
        layouts: Layouts | None = None,
    ) -> None:
        """Start without any read positions.

        Args:
            cluster_log: stores small batches.
            objects: store all other batches, with a cache in front.
            tail: the recent batches in memory.
            direct: reads long runs of journals in one piece, where that is cheap. On a local disk,
                whose pages the system keeps in memory, it saves the copy that joins a cache's
                blocks.
            layouts: the indexes of segments; None if there is no store.
        """
        self._tail = tail
        self._objects = objects
        self._opener = Opener(cluster_log, objects, direct, layouts)
        self._ahead = ReadAhead(objects, layouts)
        # The position of the batch at an offset: a sequential reader continues there.
        self._marks: OrderedDict[tuple[Key, int], ReadMark] = OrderedDict()

    def read_now(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = FAR,
    ) -> TailSlice | None:
        """Return batches from memory, or None if they must be read."""
        if offset < partition.cleaned_to:
            return None  # the batches in memory are from before compaction
        return self._tail.read(key, offset, max_bytes, whole_first=whole_first, until=until)

    async def read(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = FAR,
    ) -> TailSlice:
        """Return whole batches, starting with the one that holds `offset`, as `Tail.read` does.

        No batch begins at `until` or after it. If there is no batch at the offset, the result
        starts with the next one, or with an empty batch that leads over the gap.

        Raises:
            Corrupt: the bytes are not those that were written.
            Conflict: they were moved or deleted; read the state again.
            Unavailable: the disk, the store or the cluster log cannot be read.
        """
        piece = self.read_now(
            key, partition, offset, max_bytes, whole_first=whole_first, until=until
        )
        if piece is not None:
            return piece
        # One version of the state decides what is read, so rows are copied before the first await.
        mark = self._marks.get((key, offset))
        read = _Read(self._opener, key, partition, range(offset, until), max_bytes)
        await read.run(plan(partition, offset, max_bytes, mark, until), whole_first=whole_first)
        if read.last is not None:
            self._go_on(key, partition, read.last, mark, read.end)
        return TailSlice(read.parts, read.size, read.end)

    async def layout(self, row: Row) -> SegmentLayout:
        """Return the index of a segment.

        Raises:
            Corrupt, Conflict, Unavailable: as `read`.
        """
        return await self._opener.layout(row)

    def describe(self, error: Error) -> str:
        """Return the text of an error with the name of the object that it is about."""
        if not isinstance(error, Corrupt) or error.object_id is None:
            return str(error)
        return f"{error} (in {self._objects.name(error.object_id)})"

    def _go_on(
        self, key: Key, partition: Partition, last: _LastRow, mark: ReadMark | None, end: int
    ) -> None:
        """Record where a reader will continue, and read ahead if it is sequential."""
        if not last.row.object_id:
            return  # it was generated here and has no object
        streak = mark.streak + 1 if mark is not None else 0
        marks = self._marks
        marks[key, end] = ReadMark(last.row.object_id, last.position, streak)
        if len(marks) > _MARKS:
            marks.popitem(last=False)
        if streak and is_stored(last.row.object_id):
            self._ahead.read(partition, last.row, last.position, streak)


class _LastRow(NamedTuple):
    """The row in which a read ended, and the position after the bytes taken from it."""

    row: Row
    position: int


class _Read:
    """The state of one read in progress."""

    def __init__(
        self, opener: Opener, key: Key, partition: Partition, offsets: range, max_bytes: int
    ) -> None:
        self._opener = opener
        self._key = key
        self._partition = partition
        self._offset, self._until = offsets.start, offsets.stop
        self._max_bytes = max_bytes
        self.parts: list[Buffer] = []
        self.size = 0
        self.end = offsets.start
        self.last: _LastRow | None = None

    async def run(self, runs: list[ReadRun], *, whole_first: bool) -> None:
        """Read the runs, a few at a time, until there are enough bytes."""
        for at in range(0, len(runs), _RUNS_AT_ONCE):
            some = runs[at : at + _RUNS_AT_ONCE]
            for run, opened in zip(some, await self._open(some), strict=True):
                try:
                    if not await self._take_run(run, opened, whole_first=whole_first):
                        return
                except Error:
                    # Batches before the damage are returned. A request for the rest gets the error.
                    if not self.parts:
                        raise
                    return
        if not self.parts and runs and whole_first:
            self._lead_on(runs[-1].rows[-1])

    async def _open(self, runs: list[ReadRun]) -> list[OpenedRun | BaseException]:
        if len(runs) > 1:
            return await asyncio.gather(*map(self._open_one, runs), return_exceptions=True)
        try:
            return [await self._open_one(runs[0])]  # without the cost of a task
        except Error as error:
            return [error]

    def _open_one(self, run: ReadRun) -> Awaitable[OpenedRun]:
        return self._opener.open(self._key, self._partition, run, self._offset)

    async def _take_run(
        self, run: ReadRun, opened: OpenedRun | BaseException, *, whole_first: bool
    ) -> bool:
        """Take the batches that fit; return whether the next run's may follow."""
        taken = await self._take(run, opened, whole_first=whole_first)
        while taken is not None and not taken.is_end:
            left = self._max_bytes - self.size
            more = await self._opener.go_on(self._partition, run, taken, left)
            if more is None:
                return False
            taken = await self._take(run, more, whole_first=False)
        return taken is not None

    async def _take(
        self, run: ReadRun, opened: OpenedRun | BaseException, *, whole_first: bool
    ) -> OpenedRun | None:
        """Take the batches that fit; return `opened` if all of it was taken."""
        if isinstance(opened, BaseException):
            raise opened
        is_first = whole_first and not self.parts
        if not opened.headers and is_first:
            opened = await self._open_more(run, opened)
        wanted = opened.headers
        if wanted and wanted[-1].last_offset >= self._until:
            wanted = [header for header in wanted if header.base_offset < self._until]
        stop = _count_fitting(wanted, self._max_bytes - self.size, whole_first=is_first)
        if stop:
            self._add(run, opened, wanted[:stop])
        return opened if stop == len(opened.headers) and self.end < self._until else None

    async def _open_more(self, run: ReadRun, opened: OpenedRun) -> OpenedRun:
        """Read more if the first batch requested was incomplete."""
        whole = run.longer()
        if not run.is_segment and whole.size > run.size:
            opened = await self._open_one(whole)
        may_be_gap = opened.is_end and (run.is_segment or not run.is_dense)
        if not opened.headers and not may_be_gap:
            self._opener.drop(whole)
            raise Corrupt(
                f"{name(self._key)}: the batch of offset {self._offset} is not in object "
                f"{run.object_id}, where the cluster log says it is",
                object_id=run.object_id,
            )
        return opened

    def _add(self, run: ReadRun, opened: OpenedRun, taken: list[BatchHeader]) -> None:
        begin, end = taken[0].position, taken[-1].end
        if run.is_final:
            self.parts.append(memoryview(opened.data)[begin:end])
        else:
            self.parts += stamp(self._partition, run, opened.data, taken)
        self.size += end - begin
        self.end = taken[-1].last_offset + 1
        position = opened.position + end
        row = next(row for row in run.rows if position <= body(row)[1])
        self.last = _LastRow(row, position)

    def _lead_on(self, row: Row) -> None:
        """Add an empty batch that leads readers over a gap to the end of the rows examined."""
        end = min(row.end_offset, self._offset + MOST_OFFSETS, self._until)
        if end > self._offset:
            batch = gap(self._offset, end, row.max_timestamp)
            self.parts, self.size, self.end = [batch], len(batch), end


def _count_fitting(headers: list[BatchHeader], max_bytes: int, *, whole_first: bool) -> int:
    """Return the number of batches that fit."""
    if not headers:
        return 0
    begin = headers[0].position
    if headers[-1].end - begin <= max_bytes:
        return len(headers)
    count = 1 if whole_first else 0
    while count < len(headers) and headers[count].end - begin <= max_bytes:
        count += 1
    return count


_LOST: Final = metrics.counters(
    "rookery_log_reads_lost_total",
    "Reads of records whose bytes are missing or damaged, although the cluster log names them.",
    ("cause",),
)


class SureReader:
    """Retries with the newest state before it fails."""

    def __init__(self, reader: LogReader, replica: Replica) -> None:
        self._reader = reader
        self._replica = replica

    async def read(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = FAR,
    ) -> TailSlice | None:
        """Return the result of `LogReader.read`; None if the offset is no longer in the log.

        Raises:
            Corrupt: the bytes are damaged, or are not where the cluster log says.
            Unavailable: the disk, the store or the cluster log cannot be read.
        """
        read = self._reader.read
        try:
            return await read(
                key, partition, offset, max_bytes, whole_first=whole_first, until=until
            )
        except Error:
            await self._replica.barrier()
        now = self._replica.state.topics.partition(*key)
        if now is None or now.log_start > offset:
            return None
        try:
            return await read(key, now, offset, max_bytes, whole_first=whole_first, until=until)
        except MissingObject as error:
            _LOST.labels("missing").inc()
            raise Corrupt(self._text(key, offset, error)) from error
        except Corrupt as error:
            _LOST.labels("damaged").inc()
            raise Corrupt(self._text(key, offset, error)) from error

    def _text(self, key: Key, offset: int, error: Error) -> str:
        topic = self._replica.state.topics.by_id.get(key[0])
        name = topic.name if topic is not None else key[0].hex()
        return (
            f"topic {name} partition {key[1]} offset {offset}: {self._reader.describe(error)}; "
            "run rookery fsck to find what else is missing"
        )
