"""Turns runs into batches: reads their bytes, checks them, and adds what they were stored without.

- `Opener` reads and checks the bytes of a run.
- `stamped` gives batches their offsets, leader epochs and append times.
- `ReadAhead` serves sequential readers. It follows the rows of the partition and not the bytes of
  the object: the bytes after a row of a shared object belong to another partition, and the batches
  after a segment are in another object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from rookery.clock import loop_seconds
from rookery.cluster.port import ClusterLog
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import is_stored
from rookery.formats.layout import BlockSpan, SegmentLayout
from rookery.log.read.objects import EntryPayloads
from rookery.log.read.runs import ReadRun, body, expect_run, gap, name
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Key
from rookery.log.write.markers import marker
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.records.policy import serve
from rookery.records.scan import corrupt
from rookery.wire.buffer import Buffer

_ROWS: Final = 64
_MAX_DOUBLINGS: Final = 16
# Who has not read on for so long has stopped, and needs no share.
_ACTIVE_S: Final = 5.0


class BlockSource(Protocol):
    """Where the bytes of journals and stored objects are read from."""

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return bytes of an object, in pieces. Raises Corrupt, Conflict or Unavailable."""

    def want(self, object_id: int, position: int, size: int) -> None:
        """Begin to read what will be asked for soon, as far as there is room for it."""

    def drop(self, object_id: int, position: int, size: int) -> None:
        """Forget bytes that are damaged."""

    def name(self, object_id: int) -> str:
        """Return what an object is called, for messages."""

    @property
    def ahead_bytes(self) -> int:
        """How far ahead of one reader objects in the store are read."""

    @property
    def all_ahead_bytes(self) -> int:
        """How much may have been read ahead of all readers together and not be asked for yet."""

    @property
    def stored_block_bytes(self) -> int:
        """How much of an object in the store is read at once."""


class ReadAhead:
    """Tells a cache what will be wanted."""

    def __init__(self, objects: BlockSource, layouts: Layouts | None) -> None:
        self._objects = objects
        self._layouts = layouts
        # The partitions that are being read on and on, and when last; the latest comes last.
        self._active: OrderedDict[int, float] = OrderedDict()

    def read(self, partition: Partition, row: Row, position: int, streak: int) -> None:
        """Read on behind a position of a row, the further the longer the reader has read on."""
        objects = self._objects
        doublings = min(streak, _MAX_DOUBLINGS)
        left = min(self._share(partition), objects.stored_block_bytes << doublings)
        end = body(row)[1]
        objects.want(row.object_id, position, min(end - position, left))
        left -= end - position
        bases = partition.base_offsets
        index = partition.row_of(row.end_offset)
        if index < len(bases) and bases[index] < row.end_offset:
            return  # there is nothing behind it
        for at in range(index, min(index + _ROWS, len(bases))):
            if left <= 0:
                return
            row = partition.row(at)
            if row.object_id <= 0 or not is_stored(row.object_id):
                return
            begin, end = body(row)
            objects.want(row.object_id, begin, min(end - begin, left))
            if row.is_segment and self._layouts is not None:
                self._layouts.want(row)
            left -= end - begin

    def _share(self, partition: Partition) -> int:
        """Return how far ahead of one of several readers to read.

        Else the first of them would have all the room, and the others wait for every block.
        """
        objects, active = self._objects, self._active
        now = loop_seconds()
        active[id(partition)] = now
        active.move_to_end(id(partition))
        while next(iter(active.values())) < now - _ACTIVE_S:
            active.popitem(last=False)
        share = objects.all_ahead_bytes // len(active)
        return max(min(objects.ahead_bytes, share), objects.stored_block_bytes)


_DIRECT_FROM_BYTES: Final = 128 * 1024

Direct = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size) past the cache; fewer bytes only where the object ends."""


class OpenedRun(NamedTuple):
    """What was read of a run: its batches from the wanted offset on, checked."""

    data: Buffer
    position: int
    headers: list[BatchHeader]
    """With the offsets that the log gives them."""
    is_end: bool
    """Whether the run's rows hold nothing behind them."""
    next_block: int | None = None
    """Of a segment, the block to go on with, unless there is damage before it."""


class Opener:
    """Reads runs, whatever they lie in."""

    def __init__(
        self,
        cluster_log: ClusterLog,
        objects: BlockSource,
        direct: Direct | None,
        layouts: Layouts | None,
    ) -> None:
        """Read nothing yet; `Reader` says what the arguments are."""
        self._objects = objects
        self._direct = direct
        self._layouts = layouts
        self._entries = EntryPayloads(cluster_log)

    async def layout(self, row: Row) -> SegmentLayout:
        """Return the index of a segment."""
        if self._layouts is None:
            raise Unavailable(f"object {row.object_id} lies in a store, and this process has none")
        return await self._layouts.get(row)

    async def open(self, key: Key, partition: Partition, run: ReadRun, offset: int) -> OpenedRun:
        """Read a run and check it."""
        if run.is_final and not run.size:
            # All of the row was read before: behind its last batch there is nothing.
            return OpenedRun(b"", run.position, [], is_end=True)
        if run.is_segment:
            return await self._open_segment(partition, run, offset)
        data = await self._bytes(run)
        found = serve(data, expect_run(run, partition.epoch_at), offset)
        if found.damage is not None and not found.headers:
            self.drop(run)
            where = f"{name(key)}: object {run.object_id}"
            raise corrupt(found.damage, where, run.object_id)
        is_end = found.damage is None and found.end == len(data)
        return OpenedRun(data, run.position, found.headers, is_end)

    async def go_on(
        self, partition: Partition, run: ReadRun, before: OpenedRun, max_bytes: int
    ) -> OpenedRun | None:
        """Read what follows in a segment; None if it does not fit, or begins with damage."""
        if before.next_block is None:
            return None
        layout = await self.layout(run.rows[0])
        span = self._in_one_block(layout, layout.span(before.next_block, max_bytes))
        if span.size > max_bytes:
            return None
        return await self._open_blocks(partition, run, layout, span, run.base_offset)

    def drop(self, run: ReadRun) -> None:
        """Forget what is damaged: if that happened on the way, who asks again must not get it."""
        if run.object_id > 0:
            self._objects.drop(run.object_id, run.position, run.size)

    async def _open_segment(self, partition: Partition, run: ReadRun, offset: int) -> OpenedRun:
        if offset <= run.base_offset:
            # Its first batch is wanted: no index need tell where that is, so both are read at once.
            self._objects.want(run.object_id, run.position, run.size)
        layout = await self.layout(run.rows[0])
        span = layout.find(offset, run.size)
        while span is not None:
            span = self._in_one_block(layout, span)
            opened = await self._open_blocks(partition, run, layout, span, offset)
            if opened.headers or opened.is_end:
                return opened
            # The offset lies in a gap between two blocks.
            span = layout.span(span.stop, run.size)
        return OpenedRun(b"", run.position, [], is_end=True)

    async def _open_blocks(
        self,
        partition: Partition,
        run: ReadRun,
        layout: SegmentLayout,
        span: BlockSpan,
        offset: int,
    ) -> OpenedRun:
        where = (run.object_id, span.position, span.size)
        data = _joined(await self._objects.views(*where))
        found = serve(data, layout.expect(span, partition.epoch_at), offset)
        if found.damage is not None:
            if not found.headers:
                self._objects.drop(*where)
                raise corrupt(found.damage, layout.name)
            return OpenedRun(data, span.position, found.headers, is_end=False)
        is_last = span.stop == len(layout.blocks)
        next_block = None if is_last else span.stop
        return OpenedRun(data, span.position, found.headers, is_last, next_block)

    def _in_one_block(self, layout: SegmentLayout, span: BlockSpan) -> BlockSpan:
        """Cut a span where a cached block ends: what lies in two of them has to be copied."""
        step = self._objects.stored_block_bytes
        return layout.span(span.first, min(span.size, step - span.position % step))

    async def _bytes(self, run: ReadRun) -> Buffer:
        """Return the bytes of a run; fewer where its object ends, which damage can be."""
        if not run.object_id:
            return b"".join(map(_made, run.rows))
        if run.object_id < 0:
            payload = await self._entries.payload(-run.object_id)
            return payload[run.position : run.end]
        direct = None if is_stored(run.object_id) else self._direct
        if direct is not None and run.size >= _DIRECT_FROM_BYTES:
            return await direct(run.object_id, run.position, run.size)
        try:
            return _joined(await self._objects.views(run.object_id, run.position, run.size))
        except Corrupt:
            if direct is None:
                raise
            return await direct(run.object_id, run.position, run.size)


def _made(row: Row) -> bytes:
    """Make the batch of a row that lies in no object."""
    if row.is_marker:
        return marker(row)
    return gap(row.base_offset, row.end_offset, row.max_timestamp)


def _joined(views: list[memoryview]) -> Buffer:
    return views[0] if len(views) == 1 else bytearray().join(views)


# Batches that are this long on average go out as views of the cache; shorter ones are copied,
# because a socket takes many small parts more slowly than one copy is made.
_COPY_BELOW: Final = 16 * 1024


def stamped(
    partition: Partition, run: ReadRun, data: Buffer, headers: list[BatchHeader]
) -> list[Buffer]:
    """Write offsets into the batches of a run: in place if the bytes are ours, else around views.

    Args:
        partition: knows the leader epochs.
        run: knows which batches have the time at which they were appended.
        data: the bytes of the run.
        headers: some of its batches, with the offsets that they get.
    """
    begin, end = headers[0].position, headers[-1].end
    is_around = not isinstance(data, bytearray) and end - begin >= _COPY_BELOW * len(headers)
    if not is_around and not isinstance(data, bytearray):
        data = bytearray(data)
    view = memoryview(data)
    parts: list[Buffer] = []
    for header, append_time in zip(headers, _append_times(run, headers), strict=False):
        base = header.base_offset
        epoch = partition.epoch_at(base)
        if append_time >= 0:
            new = header.appended_at(append_time)._replace(partition_leader_epoch=epoch)
            if is_around:
                parts += batches.restamp(view, new)
            else:
                batches.restamp_into(view, new)
        elif is_around:
            parts += batches.stamp(view[header.position : header.end], base, epoch)
        else:
            batches.stamp_into(view, base, epoch, header.position)
    return parts if is_around else [view[begin:end]]


def _append_times(run: ReadRun, headers: list[BatchHeader]) -> Iterable[int]:
    """Return the append time of each batch; -1 if its own times hold."""
    if not any(row.is_append_time for row in run.rows):
        return repeat(-1)
    return _row_times(run, headers)


def _row_times(run: ReadRun, headers: list[BatchHeader]) -> Iterator[int]:
    rows = iter(run.rows)
    row = next(rows)
    for header in headers:
        while run.position + header.position >= row.position + row.size:
            row = next(rows)
        yield row.max_timestamp if row.is_append_time else -1
