"""Runs to batches: reads the bytes from where they lie, and checks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rookery.cluster.port import ClusterLog
from rookery.cluster.state.partition import Partition, Row
from rookery.errors import Corrupt, Unavailable
from rookery.formats.keys import is_stored
from rookery.formats.layout import Layout, Span
from rookery.log.ahead import Objects
from rookery.log.markers import marker
from rookery.log.objects import Entries
from rookery.log.runs import Run, gap
from rookery.log.scan import expect_run, name
from rookery.log.segmentindex import Layouts
from rookery.log.tail import Key
from rookery.records.batch import BatchHeader
from rookery.records.policy import serve
from rookery.records.scan import corrupt
from rookery.wire.buffer import Buffer

_DIRECT_FROM_BYTES: Final = 128 * 1024

Direct = Callable[[int, int, int], Awaitable[Buffer]]
"""Reads (object id, position, size) past the cache; fewer bytes only where the object ends."""


class Opened(NamedTuple):
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
        objects: Objects,
        direct: Direct | None,
        layouts: Layouts | None,
    ) -> None:
        """Read nothing yet; `Reader` says what the arguments are."""
        self._objects = objects
        self._direct = direct
        self._layouts = layouts
        self._entries = Entries(cluster_log)

    async def layout(self, row: Row) -> Layout:
        """Return the index of a segment."""
        if self._layouts is None:
            raise Unavailable(f"object {row.object_id} lies in a store, and this process has none")
        return await self._layouts.get(row)

    async def open(self, key: Key, partition: Partition, run: Run, offset: int) -> Opened:
        """Read a run and check it."""
        if run.is_final and not run.size:
            # All of the row was read before: behind its last batch there is nothing.
            return Opened(b"", run.position, [], is_end=True)
        if run.is_segment:
            return await self._open_segment(partition, run, offset)
        data = await self._bytes(run)
        found = serve(data, expect_run(run, partition.epoch_at), offset)
        if found.damage is not None and not found.headers:
            self.drop(run)
            where = f"{name(key)}: object {run.object_id}"
            raise corrupt(found.damage, where, run.object_id)
        is_end = found.damage is None and found.end == len(data)
        return Opened(data, run.position, found.headers, is_end)

    async def go_on(
        self, partition: Partition, run: Run, before: Opened, max_bytes: int
    ) -> Opened | None:
        """Read what follows in a segment; None if it does not fit, or begins with damage."""
        if before.next_block is None:
            return None
        layout = await self.layout(run.rows[0])
        span = self._in_one_block(layout, layout.span(before.next_block, max_bytes))
        if span.size > max_bytes:
            return None
        return await self._open_blocks(partition, run, layout, span, run.base_offset)

    def drop(self, run: Run) -> None:
        """Forget what is damaged: if that happened on the way, who asks again must not get it."""
        if run.object_id > 0:
            self._objects.drop(run.object_id, run.position, run.size)

    async def _open_segment(self, partition: Partition, run: Run, offset: int) -> Opened:
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
        return Opened(b"", run.position, [], is_end=True)

    async def _open_blocks(
        self, partition: Partition, run: Run, layout: Layout, span: Span, offset: int
    ) -> Opened:
        where = (run.object_id, span.position, span.size)
        data = _joined(await self._objects.views(*where))
        found = serve(data, layout.expect(span, partition.epoch_at), offset)
        if found.damage is not None:
            if not found.headers:
                self._objects.drop(*where)
                raise corrupt(found.damage, layout.name)
            return Opened(data, span.position, found.headers, is_end=False)
        is_last = span.stop == len(layout.blocks)
        next_block = None if is_last else span.stop
        return Opened(data, span.position, found.headers, is_last, next_block)

    def _in_one_block(self, layout: Layout, span: Span) -> Span:
        """Cut a span where a cached block ends: what lies in two of them has to be copied."""
        step = self._objects.stored_block_bytes
        return layout.span(span.first, min(span.size, step - span.position % step))

    async def _bytes(self, run: Run) -> Buffer:
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
