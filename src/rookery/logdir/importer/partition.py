"""Imports one partition: its batches as segments, then its state, then its completion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from rookery.cluster.events.importevents import (
    ImportedAbort,
    ImportedBatch,
    ImportedEpoch,
    ImportedProducer,
    ImportedSegment,
    PartitionImported,
    ProducersImported,
    SegmentsImported,
)
from rookery.errors import Conflict
from rookery.formats import times
from rookery.formats.keys import split_object_id
from rookery.formats.logfile.checkpoints import LoggedEpoch
from rookery.formats.logfile.replay import PartitionReplay
from rookery.formats.segmentwriter import FinishedSegment
from rookery.formats.times import SegmentOrigin
from rookery.log.maintain.newobjects import Birth, Publisher
from rookery.log.maintain.rewritejob import RowRange
from rookery.logdir.importer.report import ImportReport, Progress
from rookery.logdir.importer.segments import SegmentBatches, SegmentCutter, end_in
from rookery.logdir.importer.target import ImportSettings, ImportTarget, happen
from rookery.logdir.partition import PartitionLog
from rookery.wire.message import Message

_AT_ONCE: Final = 500
"""The maximum number of producers and aborted transactions in one event."""


class PartitionImport:
    """Imports one partition, and resumes an interrupted import."""

    def __init__(
        self,
        log: PartitionLog,
        topic_id: bytes,
        target: ImportTarget,
        settings: ImportSettings,
        report: ImportReport,
    ) -> None:
        """Set up without reading anything.

        Args:
            log: the log to read.
            topic_id: the id of the topic, which already exists.
            target: the cluster to import into.
            settings: the options of the import.
            report: receives the results.
        """
        self.log = log
        self.topic_id = topic_id
        self.target = target
        self.report = report
        self._cutter = SegmentCutter(log, settings.segment_bytes, settings.skip_damaged)
        self._replay = PartitionReplay()
        self._end: int | None = None

    async def run(self, publisher: Publisher, progress: Progress) -> None:
        """Import the partition.

        Raises:
            Conflict: another writer has written to the partition.
            Corrupt: a batch is damaged, and must not be skipped.
            Unavailable: the store or the cluster log cannot be reached; run it again.
        """
        self._end = end_in(self.target.state, self.topic_id, self.log.name.partition)
        if self._is_there():
            self.report.already.append(self.log.name)
            return
        self._replay = await asyncio.to_thread(self.log.replay)
        cut = self._cutter.cut(self._end)
        is_done = False
        while (ready := await asyncio.to_thread(next, cut, None)) is not None:
            segment = await self._write(publisher, ready)
            is_done = ready.is_last
            await self._commit(publisher, segment, is_last=is_done)
            progress(segment.size, ready.records)
            self.report.records += ready.records
        if not is_done:
            await self._tell_producers()
            await happen(self.target, [self._whole(self.log.high_watermark)], self._what)
        self.report.partitions += 1
        self.report.producers += len(self._replay.producers)
        self.report.skipped += self._cutter.damage
        if self._cutter.last_timestamp >= 0:
            self.report.newest[self.log.name] = self._cutter.last_timestamp

    def _is_there(self) -> bool:
        """Whether an earlier import has completed this partition."""
        if self._end is not None:
            return self._end >= self.log.high_watermark
        # The partition was always empty: only its leader epochs show whether it was imported.
        known = self.target.state.topics.partition(self.topic_id, self.log.name.partition)
        epochs = [tuple(epoch) for epoch in self.log.epochs]
        if known is None or self.log.high_watermark:
            return False
        return known.epochs[: len(epochs)] == epochs

    async def _write(self, publisher: Publisher, ready: SegmentBatches) -> ImportedSegment:
        base = ready.writer.base_offset
        birth = publisher.birth()
        files = self._finish(ready, birth)
        place = RowRange(self.topic_id, self.log.name.partition, base, ready.end_offset, 0, 0)
        if not await publisher.write(birth.object_id, files, place):
            raise Conflict(f"{self._what}: the topic was deleted meanwhile")
        self.report.segments += 1
        self.report.bytes += files.size
        return ImportedSegment(
            object_id=birth.object_id,
            end_offset=ready.end_offset,
            size=files.size,
            max_timestamp=max(files.max_timestamp, 0),
        )

    def _finish(self, ready: SegmentBatches, birth: Birth) -> FinishedSegment:
        """Finish a segment, with its origin and its aborted transactions."""
        name = self.log.name
        incarnation, number = split_object_id(birth.object_id)
        origin = SegmentOrigin(
            self.target.namespace, name.topic, self.topic_id, name.partition, incarnation, number
        )
        return ready.writer.finish(
            origin,
            ready.end_offset - 1,
            birth.created_ms,
            aborted=[times.SegmentAbort(*abort[:3]) for abort in self._replay.aborted],
            epochs=[times.SegmentEpoch(*epoch) for epoch in self._epochs()],
        )

    async def _commit(
        self, publisher: Publisher, segment: ImportedSegment, *, is_last: bool
    ) -> None:
        staged = self.target.state.objects.segments[segment.object_id]
        if is_last:
            await self._tell_producers()
        events: list[Message] = [
            SegmentsImported(
                topic_id=self.topic_id,
                partition=self.log.name.partition,
                base_offset=staged.base_offset,
                segments=[segment],
            )
        ]
        if is_last:
            events.append(self._whole(segment.end_offset))
        await happen(self.target, events, self._what)
        publisher.adopt(segment.object_id)

    async def _tell_producers(self) -> None:
        for event in self._producers():
            await happen(self.target, [event], self._what)

    def _producers(self) -> Iterator[ProducersImported]:
        end = end_in(self.target.state, self.topic_id, self.log.name.partition) or 0
        producers = list(_producers(self._replay))
        aborted = [
            ImportedAbort(
                producer_id=abort.producer_id,
                first_offset=abort.first_offset,
                last_offset=abort.last_offset,
                stable_offset=abort.last_stable_offset,
            )
            for abort in sorted(self._replay.aborted, key=lambda abort: abort.last_offset)
            if abort.last_offset >= self.log.log_start
        ]
        for at in range(0, max(len(producers), len(aborted)), _AT_ONCE):
            yield ProducersImported(
                topic_id=self.topic_id,
                partition=self.log.name.partition,
                end_offset=end,
                producers=producers[at : at + _AT_ONCE],
                aborted=aborted[at : at + _AT_ONCE],
            )

    def _whole(self, end_offset: int) -> PartitionImported:
        first_dirty = self.log.checkpoints.first_dirty or 0
        return PartitionImported(
            topic_id=self.topic_id,
            partition=self.log.name.partition,
            log_start=self.log.log_start,
            end_offset=end_offset,
            cleaned_to=max(self._cutter.cleaned_to, first_dirty),
            append_time=-1,
            epochs=[
                ImportedEpoch(epoch=epoch.epoch, start_offset=epoch.start_offset)
                for epoch in self._epochs()
                if epoch.start_offset <= end_offset
            ],
        )

    def _epochs(self) -> list[LoggedEpoch]:
        return self.log.epochs or self._cutter.epochs

    @property
    def _what(self) -> str:
        return f"partition {self.log.name.text}"


def _producers(replay: PartitionReplay) -> Iterator[ImportedProducer]:
    for entry in replay.producers.values():
        batches = replay.batches.get(entry.producer_id, ())
        yield ImportedProducer(
            producer_id=entry.producer_id,
            epoch=max(entry.epoch, 0),
            time_ms=max(entry.timestamp, 0),
            first_offset=replay.open.get(entry.producer_id, -1),
            batches=[
                ImportedBatch(
                    first_sequence=batch.first_sequence,
                    records=batch.last_offset - batch.base_offset + 1,
                    base_offset=batch.base_offset,
                )
                for batch in batches
                if batch.first_sequence >= 0
            ],
        )
