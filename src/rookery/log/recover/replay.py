"""Reads the batches after the snapshot for facts that only they contain.

These facts are: the last batches of producers, so that duplicates are still detected; which
transactions are open, ended or torn; the leader epochs in final batches; and whether compaction has
left gaps.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from typing import Final, NamedTuple

from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt
from rookery.formats.manifest import EndMarker
from rookery.log.check.fault import FaultKind, FaultRange, LogFault
from rookery.log.check.progress import Progress
from rookery.log.check.sources import Bytes, Sources
from rookery.log.read.files import MissingObject
from rookery.log.read.runs import batches_of, expect_body
from rookery.log.recover.ends import Key
from rookery.log.recover.rebuild import RebuiltState
from rookery.log.recover.transactions import Spans, settle
from rookery.records.batches import BatchHeader
from rookery.records.expectation import OffsetRule
from rookery.records.scan import corrupt

_AT_ONCE: Final = 8
_STEP_BYTES: Final = 4 * 1024 * 1024


class _Batch(NamedTuple):
    """A batch with its offsets, and the bytes that contain it."""

    header: BatchHeader
    data: memoryview


class StateReplay:
    """Updates a rebuilt state from the batches in it."""

    def __init__(
        self, sources: Sources, rebuilt: RebuiltState, now_ms: int, progress: Progress
    ) -> None:
        """Prepare the replay.

        Args:
            sources: the handles to read batches from.
            rebuilt: the state to update.
            now_ms: the time of the last activity of all these producers, so that none expires too
                early.
            progress: receives the number of bytes and batches read.
        """
        self._rebuilt = rebuilt
        self._bytes = Bytes(sources, lambda: rebuilt.state)
        self._now_ms = now_ms
        self._progress = progress
        self._faults: list[LogFault] = []
        self._recorded: dict[Key, dict[int, EndMarker]] = defaultdict(dict)
        for recorded in rebuilt.ends:
            for key, marker in recorded.markers:
                self._recorded[key][marker.offset] = marker
        self._spans: dict[Key, Spans] = {}

    async def run(self) -> list[LogFault]:
        """Read the batches; return faults for unreadable rows and for torn transactions."""
        work = iter([(t, p) for t in self._rebuilt.state.topics for p in t.partitions])

        async def replay_next() -> None:
            for topic, partition in work:
                await self._partition(topic, partition)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(replay_next())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return self._faults + settle(self._rebuilt.state, self._rebuilt.ends, self._spans)

    async def _partition(self, topic: Topic, partition: Partition) -> None:
        key = (topic.id, partition.index)
        known = self._rebuilt.known_ends.get(key, 0)
        spans = self._spans[key] = Spans(partition, self._recorded[key])
        for index in range(len(partition.base_offsets)):
            row = partition.row(index)
            if row.is_lost:
                spans.miss(row, is_known=row.base_offset < known)
            elif row.is_marker and row.base_offset >= known:
                spans.marker(row)
            # A row of old offsets that was rewritten since may have been compacted.
            is_new = row.end_offset > known or (row.object_id, row.position) in self._rebuilt.fresh
            if row.object_id and is_new:
                try:
                    await self._row(partition, row, spans, known)
                except (Corrupt, MissingObject) as error:
                    spans.miss(row, is_known=row.base_offset < known)
                    where = FaultRange(topic.name, partition.index, row.base_offset, row.end_offset)
                    name = self._bytes.places.name(row.object_id)
                    self._faults.append(LogFault(FaultKind.CORRUPT, name, str(error), where))

    async def _row(self, partition: Partition, row: Row, spans: Spans, known: int) -> None:
        expected, has_gap = row.base_offset, False
        async for header, data in self._batches(row):
            has_gap = has_gap or header.base_offset != expected
            expected = header.last_offset + 1
            if row.is_final:
                _note_epoch(partition, header)
            if header.base_offset >= known:
                self._note_producer(partition, header)
                spans.batch(data, header, header.base_offset)
        if row.is_final and (has_gap or expected != row.end_offset):
            partition.cleaned_to = max(partition.cleaned_to, row.end_offset)

    async def _batches(self, row: Row) -> AsyncIterator[_Batch]:
        """Yield the batches, reading a few MiB at a time."""
        rule = OffsetRule.SPARSE if row.is_final else OffsetRule.ASSIGNED
        read = partial(self._bytes.read, row.object_id)
        async for scan in batches_of(read, expect_body(row, rule), _STEP_BYTES):
            for header in scan.headers:
                yield _Batch(header, scan.data)
            self._progress(scan.end, len(scan.headers))
            if scan.damage is not None:
                raise corrupt(scan.damage)

    def _note_producer(self, partition: Partition, header: BatchHeader) -> None:
        if not header.has_producer_id or header.base_sequence < 0:
            return
        window = partition.producers.get(header.producer_id)
        if window is not None and producers.describe(window).epoch > header.producer_epoch:
            return
        partition.producers[header.producer_id] = producers.remember(
            window,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta + 1,
            offset=header.base_offset,
            time_ms=self._now_ms,
        )


def _note_epoch(partition: Partition, header: BatchHeader) -> None:
    """Set the epoch of an offset to the one in its batch."""
    base, epoch = header.base_offset, header.partition_leader_epoch
    epochs = partition.epochs
    if epoch == partition.epoch_at(base) and epochs:
        return
    if epochs and (epochs[-1][1] > base or epochs[-1][0] > epoch):
        return  # an older epoch that is known, or damage that fsck reports
    if epochs and epochs[-1][1] == base:
        epochs.pop()
    epochs.append((epoch, base))
