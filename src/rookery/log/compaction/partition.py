"""Compacts one partition in steps: builds the map of the dirty part, then rewrites all rows.

    pass one   cleaned_to ──► bound: the last offset of every key      (full: it ends there)
    pass two   first row ──► end of the map: kept records, packed into segments, in their order

Every segment takes effect by its own event, and only if its rows are still those that were read.
The first segment that does not take effect ends the work. Everything below a segment has therefore
been compacted against the same map or a later one, and a tombstone is never removed before the
records that it deletes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery import metrics
from rookery.cluster.state.aborts import within
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.topics import Topic
from rookery.log.compaction.fates import Fates
from rookery.log.compaction.output import Output
from rookery.log.compaction.plan import DirtyRange
from rookery.log.compaction.sift import Sieve, SiftedBatches, note, spread
from rookery.log.compaction.source import STRETCH_BYTES, pieces, stretch
from rookery.log.maintain.newobjects import CapturedRange
from rookery.log.maintain.refine import Read, RefinedRow
from rookery.log.maintain.rewritejob import range_of
from rookery.records.sieve import SLOT_BYTES, OffsetMap

log = logging.getLogger(__name__)

_SPARE_SLOTS: Final = 64

READ_BYTES: Final = metrics.counter(
    "rookery_compaction_read_bytes_total", "Bytes that compaction has read, both passes together."
)
WRITTEN_BYTES: Final = metrics.counter(
    "rookery_compaction_written_bytes_total", "Bytes of the segments that compaction has written."
)
REMOVED_RECORDS: Final = metrics.counter(
    "rookery_compaction_removed_records_total", "Records that compaction has left out."
)


class CompactionStep(NamedTuple):
    """A finished part of the work."""

    read: int
    """Bytes that were read."""
    replaced: int = 0
    """Bytes of rows that were replaced."""


class CompactionTask(NamedTuple):
    """The work to do, and its parameters."""

    dirt: DirtyRange
    now_ms: int
    delete_retention_ms: int
    map_bytes: int
    seed: bytes


@dataclass(slots=True)
class _Group:
    """Rows that become one segment, and the records kept."""

    rows: list[Row] = field(default_factory=list)
    kept: list[SiftedBatches] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(sifted.size for sifted in self.kept)

    @property
    def end_offset(self) -> int:
        return self.rows[-1].end_offset

    def add(self, rows: list[Row], kept: SiftedBatches) -> None:
        self.rows += rows
        self.kept.append(kept)

    def is_as_before(self, cleaned_to: int) -> bool:
        """Whether this is one segment that was compacted before and does not change."""
        return (
            len(self.rows) == 1
            and self.rows[0].is_segment
            and self.end_offset <= cleaned_to
            and not self.kept[0].is_changed
        )


class PartitionCompaction:
    """The compaction of one partition; rows may be moved or added meanwhile."""

    def __init__(self, task: CompactionTask, output: Output, read: Read) -> None:
        self._task = task
        self._output = output
        self._read = read
        offsets = task.dirt.bound - task.dirt.start
        most = SLOT_BYTES * (offsets + offsets // 4 + _SPARE_SLOTS)
        self._last = OffsetMap(min(task.map_bytes, most), task.seed)
        self._end = task.dirt.start
        # All transactions below the bound are decided, so this list is complete.
        partition = task.dirt.partition
        self._fates = Fates(within(partition.aborted, partition.log_start, task.dirt.bound))

    async def run(self) -> AsyncIterator[CompactionStep]:
        """Do the work, as far as the iterator is consumed.

        Raises:
            UnreadableRowError: a row cannot be read.
            Unavailable, Conflict: as `Output.publish`.
        """
        async for step in self._note():
            yield step
        if self._end <= self._task.dirt.start:
            log.warning(
                "topic %s partition %d cannot be compacted: %d bytes are too few for the keys of "
                "the batch at offset %d; raise compaction.map_bytes",
                self._task.dirt.topic.name, self._task.dirt.partition.index,
                self._task.map_bytes, self._end,
            )  # fmt: skip
            return
        async for step in self._rewrite():
            yield step

    def _partition(self) -> tuple[Topic, Partition] | None:
        """Look up the partition, which may have been deleted."""
        topics = self._output.publisher.replica.state.topics
        topic = topics.by_id.get(self._task.dirt.topic.id)
        partition = topics.partition(self._task.dirt.topic.id, self._task.dirt.partition.index)
        return None if topic is None or partition is None else (topic, partition)

    # Pass one.

    async def _note(self) -> AsyncIterator[CompactionStep]:
        offset, bound = self._task.dirt.start, self._task.dirt.bound
        while offset < bound and (current := self._partition()):
            rows = stretch(current[1], offset, bound, STRETCH_BYTES)
            if not rows:
                break
            async for piece in pieces(self._read, current[1], rows):
                noted = await asyncio.to_thread(
                    note, self._last, piece, self._task.dirt.start, bound, self._fates
                )
                self._end = max(self._end, noted.end_offset)
                if noted.is_full:
                    return
            offset = rows[-1].end_offset
            self._end = max(self._end, min(offset, bound))
            yield _read_step(rows)

    # Pass two.

    async def _rewrite(self) -> AsyncIterator[CompactionStep]:
        current = self._partition()
        offset = current[1].base_offsets[0] if current and current[1].base_offsets else self._end
        segment_bytes = self._output.settings.segment_bytes
        group = _Group()
        while offset < self._end and (current := self._partition()):
            rows = stretch(current[1], offset, self._end, segment_bytes)
            if not rows or rows[0].base_offset != offset:
                break  # the beginning of the log was deleted
            kept = await self._sift(current[1], rows)
            offset = rows[-1].end_offset
            yield _read_step(rows)
            if group.rows and group.size + kept.size > segment_bytes:
                step = await self._publish(group)
                if step is None:
                    return
                yield step
                group = _Group()
            group.add(rows, kept)
            if self._is_good(group):
                group = _Group()
        if group.rows and (step := await self._publish(group)):
            yield step

    def _is_good(self, group: _Group) -> bool:
        """Whether to keep a segment unchanged; smaller ones may still be joined with others."""
        half = self._output.settings.segment_bytes // 2
        return group.size >= half and group.is_as_before(self._task.dirt.start)

    async def _sift(self, partition: Partition, rows: list[Row]) -> SiftedBatches:
        sieve = Sieve(
            self._last,
            self._end,
            self._task.now_ms,
            self._task.delete_retention_ms,
            self._fates,
        )
        kept = SiftedBatches()
        async for piece in pieces(self._read, partition, rows):
            await asyncio.to_thread(sieve.sift, piece, kept)
        return kept

    async def _publish(self, group: _Group) -> CompactionStep | None:
        """Replace a group by a segment; None if one of its rows has changed."""
        if group.is_as_before(self._task.dirt.start):
            return CompactionStep(0)
        current = self._partition()
        source = _capture(*current, group) if current else None
        if source is None:
            return None
        # Set cleaned_to to its end, but not beyond the end of the map: a row may reach further.
        size = await self._output.publish(source, min(group.end_offset, self._end), self._end)
        if size is None:
            return None
        WRITTEN_BYTES.inc(size)
        REMOVED_RECORDS.inc(sum(sifted.removed for sifted in group.kept))
        return CompactionStep(0, source.range.size)


def _capture(topic: Topic, partition: Partition, group: _Group) -> CapturedRange | None:
    """Return the rows of a group, if they are still those that were read."""
    span = partition.span(group.rows[0].base_offset, group.end_offset)
    if span is None or [partition.row(index) for index in span] != group.rows:
        return None
    latest = max(row.max_timestamp for row in group.rows)
    whole = group.rows[0]._replace(end_offset=group.end_offset, max_timestamp=latest)
    refined = [RefinedRow(partition, whole, len(data), [data]) for data in spread(group.kept)]
    return CapturedRange(topic, partition, range_of(topic, partition, span), refined)


def _read_step(rows: list[Row]) -> CompactionStep:
    size = sum(row.size for row in rows)
    READ_BYTES.inc(size)
    return CompactionStep(size)
