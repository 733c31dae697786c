"""A cache of parsed segment indexes; concurrent requests for an index share one read.

    .times ──(missing or damaged)──► .index and the segment's ends ──(missing or damaged)──► a walk

A walk reads the whole segment once and derives everything that the index files would contain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from rookery import metrics
from rookery.cluster.state.partition import Row
from rookery.errors import Corrupt
from rookery.formats.keys import index_key, times_key
from rookery.formats.layout import SegmentLayout
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    parse_footer,
    parse_header,
    parse_index,
)
from rookery.formats.times import parse_times
from rookery.log.read.files import MissingObject
from rookery.log.read.objects import Places
from rookery.log.read.runs import body
from rookery.log.read.segmentwalk import Read, lay_out

log = logging.getLogger(__name__)

DEFAULT_BYTES: Final = 64 * 1024 * 1024
# The memory cost of a block: a tuple with its numbers, and its entries in three lists.
_BLOCK_COST: Final = 320
# Longer files are parsed in a thread.
_THREAD_FROM_BYTES: Final = 64 * 1024
# An index by other software may be much sparser than ours; blocks are read and checked whole.
_MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024

_FAILED: Final = metrics.counters(
    "rookery_log_segment_indexes_failed_total",
    "Index and times files of segments that were missing or damaged when they were needed.",
    ("file",),
)


class Layouts:
    """Layouts of segments by object id, bounded in bytes; for one event loop."""

    def __init__(self, places: Places, read: Read, max_bytes: int = DEFAULT_BYTES) -> None:
        """Start with an empty cache.

        Args:
            places: reads the files that belong to segments.
            read: reads committed bytes of a segment, through a cache.
            max_bytes: the memory bound; the newest layout is kept in any case.
        """
        self._places = places
        self._read = read
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, SegmentLayout] = OrderedDict()
        self._loads: dict[int, asyncio.Task[SegmentLayout]] = {}
        self.held_bytes = 0
        """The approximate size of all layouts in bytes."""

    async def get(self, row: Row) -> SegmentLayout:
        """Return the layout of the segment of a row.

        Raises:
            MissingObject: the segment does not exist.
            Corrupt: no layout can be derived from it.
            Unavailable: the store cannot be read.
        """
        layout = self._kept.get(row.object_id)
        if layout is not None:
            self._kept.move_to_end(row.object_id)
            return layout
        # A caller that is cancelled must not cancel the read for the others.
        return await asyncio.shield(self._load(row))

    def want(self, row: Row) -> None:
        """Start to read a layout that will be requested soon."""
        if row.object_id not in self._kept:
            _ = self._load(row)

    async def close(self) -> None:
        """Wait for the reads in progress."""
        await asyncio.gather(*self._loads.values(), return_exceptions=True)

    def _load(self, row: Row) -> asyncio.Task[SegmentLayout]:
        task = self._loads.get(row.object_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fill(row))
            self._loads[row.object_id] = task
            task.add_done_callback(_retrieve)
        return task

    async def _fill(self, row: Row) -> SegmentLayout:
        try:
            layout = await self._find(row)
            self._keep(row.object_id, layout)
            return layout
        finally:
            del self._loads[row.object_id]

    async def _find(self, row: Row) -> SegmentLayout:
        key = self._places.key(row.object_id)
        ways: list[tuple[str, Callable[[Row, str], Awaitable[SegmentLayout]]]] = [
            (times_key(key), self._by_times),
            (index_key(key), self._by_index),
        ]
        for name, way in ways:
            try:
                layout = await way(row, key)
                _check(layout, row)
                return layout
            except (MissingObject, Corrupt) as error:
                _FAILED.labels(name.rpartition(".")[2]).inc()
                log.warning(
                    "the segment is read without %s, more slowly, until it is rewritten: %s",
                    name, error, extra={"object": name},
                )  # fmt: skip
        layout = await lay_out(self._read, row.object_id, _file_bytes(row), key)
        _check(layout, row)
        return layout

    async def _by_times(self, row: Row, key: str) -> SegmentLayout:
        data = await self._places.beside(row.object_id, times_key(key))
        if len(data) < _THREAD_FROM_BYTES:
            return _parse_times(data, row, key)
        return await asyncio.to_thread(_parse_times, data, row, key)

    async def _by_index(self, row: Row, key: str) -> SegmentLayout:
        data = await self._places.beside(row.object_id, index_key(key))
        size = _file_bytes(row)
        head = await self._read(row.object_id, 0, HEADER_BYTES)
        foot = await self._read(row.object_id, size - FOOTER_BYTES, FOOTER_BYTES)
        header, footer = parse_header(head, key), parse_footer(foot, key)
        index = parse_index(data, index_key(key))
        layout = SegmentLayout.from_index(index, header, footer, size, key)
        if not layout.is_dense:
            # Where offsets are missing, only a checksum can prove that the others are right.
            raise Corrupt(f"{key}: has gaps, so an index alone is not enough to check it")
        longest = max((block.size for block in layout.blocks), default=0)
        if longest > _MAX_BLOCK_BYTES:
            raise Corrupt(f"{index_key(key)}: leaves out {longest} bytes, too many to read at once")
        return layout

    def _keep(self, object_id: int, layout: SegmentLayout) -> None:
        self._kept[object_id] = layout
        self.held_bytes += _cost(layout)
        while self.held_bytes > self._max_bytes and len(self._kept) > 1:
            self.held_bytes -= _cost(self._kept.popitem(last=False)[1])


def _parse_times(data: bytes, row: Row, key: str) -> SegmentLayout:
    name = times_key(key)
    times = parse_times(data, name)
    times.check_key(name)
    if times.size != _file_bytes(row):
        raise Corrupt(f"{name}: is for {times.size} bytes, the cluster log has {_file_bytes(row)}")
    return SegmentLayout.from_times(times, key)


def _file_bytes(row: Row) -> int:
    """Return the size of the whole segment file."""
    return body(row)[1] + FOOTER_BYTES


def _check(layout: SegmentLayout, row: Row) -> None:
    """Reject the layout of another segment."""
    base, last = layout.header.base_offset, layout.footer.last_offset
    if base < row.base_offset or last >= row.end_offset:
        raise Corrupt(
            f"{layout.name}: has the offsets {base} to {last}, but the cluster log says "
            f"{row.base_offset} to {row.end_offset - 1}"
        )


def _cost(layout: SegmentLayout) -> int:
    return _BLOCK_COST * (len(layout.blocks) + 1)


def _retrieve(task: asyncio.Task[SegmentLayout]) -> None:
    # No caller may be waiting for a layout that was read ahead. Its failure is ignored then.
    if not task.cancelled():
        task.exception()
