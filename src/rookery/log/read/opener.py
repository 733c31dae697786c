"""Turns runs into batches: reads their bytes, checks them, and adds what they were stored without.

- `Opener` reads and checks the bytes of a run.
- `stamp` gives batches their offsets, leader epochs and append times.
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
from rookery.cluster.port import ReadableLog
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import is_stored
from rookery.formats.layout import BlockSpan, SegmentLayout
from rookery.log.read.objects import EntryPayloads
from rookery.log.read.runs import ReadRun, body, expect_run, gap, name
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Key
from rookery.log.write.markers import marker
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.policy import serve
from rookery.records.scan import corrupt
from rookery.wire.buffer import Buffer

_ROWS: Final = 64
_MAX_DOUBLINGS: Final = 16
# A reader that has not continued for this long has stopped and needs no share.
_ACTIVE_S: Final = 5.0


class BlockSource(Protocol):
    """Reads bytes of journals and stored objects."""

    async def views(self, object_id: int, position: int, size: int) -> list[memoryview]:
        """Return bytes of an object in pieces. Raises Corrupt, Conflict or Unavailable."""

    def want(self, object_id: int, position: int, size: int) -> None:
        """Start to read bytes that will be requested soon, as far as there is room for them."""

    def drop(self, object_id: int, position: int, size: int) -> None:
        """Drop cached bytes that are damaged."""

    def name(self, object_id: int) -> str:
        """Return the name of an object, for messages."""

    @property
    def ahead_bytes(self) -> int:
        """How many bytes stored objects are read ahead of one reader."""

    @property
    def all_ahead_bytes(self) -> int:
        """The bound on bytes read ahead for all readers together and not requested yet."""

    @property
    def stored_block_bytes(self) -> int:
        """The number of bytes of a stored object that one request reads."""


class ReadAhead:
    """Requests blocks from a cache before readers need them."""

    def __init__(self, objects: BlockSource, layouts: Layouts | None) -> None:
        self._objects = objects
        self._layouts = layouts
        # The partitions that are read sequentially and the time of the last read, most recent last.
        self._active: OrderedDict[int, float] = OrderedDict()

    def read(self, partition: Partition, row: Row, position: int, streak: int) -> None:
        """Read ahead from a position of a row; the distance grows with the streak of the reader."""
        objects = self._objects
        doublings = min(streak, _MAX_DOUBLINGS)
        left = min(self._share(partition), objects.stored_block_bytes << doublings)
        end = body(row)[1]
        objects.want(row.object_id, position, min(end - position, left))
        left -= end - position
        bases = partition.base_offsets
        index = partition.row_of(row.end_offset)
        if index < len(bases) and bases[index] < row.end_offset:
            return  # no row follows
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
        """Return how many bytes to read ahead of one of several readers.

        Without shares, the first reader would take all the room, and the others would wait for
        every block.
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
"""Reads (object id, position, size) without the cache; returns less only where the object ends."""


class OpenedRun(NamedTuple):
    """The checked batches of a run from the requested offset on."""

    data: Buffer
    position: int
    headers: list[BatchHeader]
    """With the offsets that the log assigns."""
    is_end: bool
    """Whether the run's rows hold no batches after these."""
    next_block: int | None = None
    """The next block of a segment, unless there is damage before it."""


class Opener:
    """Reads runs from any kind of object."""

    def __init__(
        self,
        cluster_log: ReadableLog,
        objects: BlockSource,
        direct: Direct | None,
        layouts: Layouts | None,
    ) -> None:
        """Set the sources; `LogReader` documents the arguments."""
        self._objects = objects
        self._direct = direct
        self._layouts = layouts
        self._entries = EntryPayloads(cluster_log)

    async def layout(self, row: Row) -> SegmentLayout:
        """Return the index of a segment."""
        if self._layouts is None:
            raise Unavailable(
                f"object {row.object_id} is in a store, but this process has no store"
            )
        return await self._layouts.get(row)

    async def open(self, key: Key, partition: Partition, run: ReadRun, offset: int) -> OpenedRun:
        """Read a run and check it."""
        if run.is_final and not run.size:
            # All of the row was read before: nothing follows its last batch.
            return OpenedRun(b"", run.position, [], is_end=True)
        if run.is_segment:
            return await self._open_segment(partition, run, offset)
        data = await self._bytes(run)
        scan = serve(data, expect_run(run, partition.epoch_at), offset)
        if scan.damage is not None and not scan.headers:
            self.drop(run)
            where = f"{name(key)}: object {run.object_id}"
            raise corrupt(scan.damage, where, run.object_id)
        is_end = scan.damage is None and scan.end == len(data)
        return OpenedRun(data, run.position, scan.headers, is_end)

    async def go_on(
        self, partition: Partition, run: ReadRun, before: OpenedRun, max_bytes: int
    ) -> OpenedRun | None:
        """Read what follows in a segment; None if it does not fit or begins with damage."""
        if before.next_block is None:
            return None
        layout = await self.layout(run.rows[0])
        span = self._in_one_block(layout, layout.span(before.next_block, max_bytes))
        if span.size > max_bytes:
            return None
        return await self._open_blocks(partition, run, layout, span, run.base_offset)

    def drop(self, run: ReadRun) -> None:
        """Drop damaged bytes from the cache: if they were damaged in transit, a retry succeeds."""
        if run.object_id > 0:
            self._objects.drop(run.object_id, run.position, run.size)

    async def _open_segment(self, partition: Partition, run: ReadRun, offset: int) -> OpenedRun:
        if offset <= run.base_offset:
            # The first batch is requested. Its position needs no index, so both are read in
            # parallel.
            self._objects.want(run.object_id, run.position, run.size)
        layout = await self.layout(run.rows[0])
        span = layout.find(offset, run.size)
        while span is not None:
            span = self._in_one_block(layout, span)
            opened = await self._open_blocks(partition, run, layout, span, offset)
            if opened.headers or opened.is_end:
                return opened
            # The offset is in a gap between two blocks.
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
        data = _join(await self._objects.views(*where))
        scan = serve(data, layout.expect(span, partition.epoch_at), offset)
        if scan.damage is not None:
            if not scan.headers:
                self._objects.drop(*where)
                raise corrupt(scan.damage, layout.name)
            return OpenedRun(data, span.position, scan.headers, is_end=False)
        is_last = span.stop == len(layout.blocks)
        next_block = None if is_last else span.stop
        return OpenedRun(data, span.position, scan.headers, is_last, next_block)

    def _in_one_block(self, layout: SegmentLayout, span: BlockSpan) -> BlockSpan:
        """Cut a span at the end of a cached block: bytes that span two blocks must be copied."""
        step = self._objects.stored_block_bytes
        return layout.span(span.first, min(span.size, step - span.position % step))

    async def _bytes(self, run: ReadRun) -> Buffer:
        """Return the bytes of a run; fewer if its object ends early, which can be damage."""
        if not run.object_id:
            return b"".join(map(_make_batch, run.rows))
        if run.object_id < 0:
            payload = await self._entries.payload(-run.object_id)
            return payload[run.position : run.end]
        direct = None if is_stored(run.object_id) else self._direct
        if direct is not None and run.size >= _DIRECT_FROM_BYTES:
            return await direct(run.object_id, run.position, run.size)
        try:
            return _join(await self._objects.views(run.object_id, run.position, run.size))
        except Corrupt:
            if direct is None:
                raise
            return await direct(run.object_id, run.position, run.size)


def _make_batch(row: Row) -> bytes:
    """Generate the batch of a row that has no object."""
    if row.is_marker:
        return marker(row)
    return gap(row.base_offset, row.end_offset, row.max_timestamp)


def _join(views: list[memoryview]) -> Buffer:
    return views[0] if len(views) == 1 else bytearray().join(views)


# Batches that are this long on average are sent as views of the cache. Shorter ones are copied,
# because sending many small parts to a socket is slower than one copy.
_COPY_BELOW: Final = 16 * 1024


def stamp(
    partition: Partition, run: ReadRun, data: Buffer, headers: list[BatchHeader]
) -> list[Buffer]:
    """Write offsets into the batches of a run: in place if the bytes are ours, else around views.

    Args:
        partition: knows the leader epochs.
        run: knows which batches have an append time.
        data: the bytes of the run.
        headers: some of its batches, with the offsets to write.
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
            new = header.with_append_time(append_time)._replace(partition_leader_epoch=epoch)
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
    """Return the append time of each batch; -1 if the batch keeps its own times."""
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
