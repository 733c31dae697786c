"""Driver-side planning of a stream: the start, the end of each batch, and the tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rookery.cluster.state.partition import Partition
from rookery.direct import pace
from rookery.direct.groupoffsets import publish_offsets
from rookery.direct.log import DirectLog
from rookery.direct.offsets import SubscribedPartition, check_reached, end_of
from rookery.direct.pins import Pins, find_compacted
from rookery.errors import Error
from rookery.log.read.rangeplan import Gap, OffsetRange, PlannedRange, ReadPlanner
from rookery.model.uuid import uuid_text
from rookery.spark.read.batchread import choose_task_size
from rookery.spark.read.gaps import handle_gaps
from rookery.spark.read.offset import Key, StreamOffset
from rookery.spark.read.options import ReadOptions
from rookery.spark.read.resume import resume_offset

log = logging.getLogger(__name__)


class StreamPlan:
    """The batches of one query, planned from an open log."""

    def __init__(self, log: DirectLog, options: ReadOptions) -> None:
        self._log = log
        self._options = options
        self._pins = Pins(log, options.pin_ms)
        self._target: dict[Key, int] | None = None
        self._fired_ms: int | None = None
        self._published: dict[Key, int] = {}

    async def find_beginning(self) -> StreamOffset:
        """Return the start offset of a new query.

        Raises:
            ConfigError: a topic, partition or sink that is named does not exist.
        """
        await self._log.barrier()
        if self._options.resume_from:
            return await resume_offset(self._log, self._options.resume_from)
        return StreamOffset.beginning(await self._log.plan(self._start))

    async def _start(self) -> dict[Key, int]:
        options = self._options
        subjects = options.subscription.find(self._log.state)
        committed = options.is_committed
        return await options.start.resolve(self._log, subjects, is_committed=committed)

    async def stop_here(self) -> None:
        """Stop the query at the current end of the log."""
        await self._log.barrier()
        self._target = dict(self.ends().next)

    def ends(self) -> StreamOffset:
        """Return the end of the log, as of the last refresh."""
        committed = self._options.is_committed
        return StreamOffset(
            {
                _key(subject): end_of(subject.partition, is_committed=committed)
                for subject in self._subjects()
            }
        )

    async def latest(self, start: StreamOffset, max_records: int | None) -> StreamOffset:
        """Return the end of the next batch.

        Args:
            start: the start of the batch.
            max_records: the limit that Spark sets; None means all records, regardless of the
                options.

        Raises:
            Conflict: the log ends before `start`; or records are missing, and the options specify
                that the query must fail.
        """
        await self._log.barrier()
        await self._publish(start)
        begin = self._with_new(self._without_gone(start))
        self._check_within(begin)
        newest = self.ends().next if self._target is None else self._target
        ends = {key: max(newest.get(key, 0), first) for key, first in begin.next.items()}
        if max_records is not None:
            ends = self._apply_limits(begin.next, ends, max_records)
        if ends == dict(start.next):
            await self._pins.release()  # all that was read is committed, and no batch is pending
            return start
        return await self._pin(begin, StreamOffset(ends, begin.origin))

    async def _pin(self, begin: StreamOffset, end: StreamOffset) -> StreamOffset:
        """Pin a batch before Spark stores its end, and record how far it was compacted.

        If it were pinned later, it could be compacted in between, and then could never be run.
        """
        wanted = _between(begin, end)
        await self._hold(wanted)
        pinned = [range_[:2] for range_ in wanted if self._pins.is_needed(range_.topic_id)]
        cleaned = {key: partition.cleaned_to for key, partition in self._partitions(pinned).items()}
        return replace(end, cleaned=cleaned)

    async def _hold(self, wanted: list[OffsetRange]) -> None:
        await self._pins.hold_from(
            {(range_.topic_id, range_.partition): range_.begin for range_ in wanted}
        )

    async def shares(self, start: StreamOffset, end: StreamOffset) -> list[list[PlannedRange]]:
        """Plan a batch: the same offsets always return the same records.

        This does not hold for a compacted topic after its pin has expired. The difference is then
        reported as missing records.

        Raises:
            Conflict: records are missing, and the options specify that the query must fail.
        """
        wanted = _between(start, end)
        if not self._knows(wanted):
            await self._log.barrier()
        await self._hold(wanted)
        return await self._log.plan(lambda: self._shares(wanted, end))

    async def _shares(
        self, wanted: list[OffsetRange], end: StreamOffset
    ) -> list[list[PlannedRange]]:
        planner = ReadPlanner(self._log, is_committed=self._options.is_committed)
        ranges = await planner.plan(wanted)
        handle_gaps(self._options, [*planner.gaps, *self._find_compacted(wanted, end)])
        return await planner.tasks(ranges, choose_task_size(self._options))

    def _find_compacted(self, wanted: list[OffsetRange], end: StreamOffset) -> list[Gap]:
        """Return the gaps caused by compaction since the batch was first planned."""
        known = [
            (range_, end.cleaned[range_[:2]]) for range_ in wanted if range_[:2] in end.cleaned
        ]
        gaps = (find_compacted(self._log.state, range_, cleaned_to) for range_, cleaned_to in known)
        return [gap for gap in gaps if gap is not None]

    async def _publish(self, done: StreamOffset) -> None:
        """Publish the progress of the query: the next batch starts where the last was committed.

        If Spark ends the query before it requests another batch, `rookery.spark.lag` publishes the
        last.
        """
        group = self._options.group_id
        known = self._log.state.topics.by_id
        offsets = {key: number for key, number in done.next.items() if key[0] in known}
        if not group or offsets == self._published:
            return
        try:
            await publish_offsets(self._log, group, offsets)
        except Error as error:
            # The query continues: only the figures shown by tools depend on this.
            log.warning("the offsets of group %s are not published: %s", group, error)
        self._published = offsets

    def _subjects(self) -> list[SubscribedPartition]:
        return self._options.subscription.find(self._log.state, is_strict=False)

    def _knows(self, wanted: list[OffsetRange]) -> bool:
        """Return whether the last refresh of the log covers the offsets."""
        for range_ in wanted:
            partition = self._log.state.topics.partition(range_.topic_id, range_.partition)
            if partition is None or partition.next_offset < range_.end:
                return False
        return True

    def _without_gone(self, start: StreamOffset) -> StreamOffset:
        """Drop deleted topics; their unread records are lost."""
        topics = self._log.state.topics.by_id
        gone = [key for key in start.next if key[0] not in topics]
        if not gone:
            return start
        reason = "the topic was deleted"
        gaps = [
            Gap(uuid_text(topic_id), index, start.next[topic_id, index], -1, reason)
            for topic_id, index in gone
        ]
        handle_gaps(self._options, gaps)
        return StreamOffset(_but(start.next, gone), _but(start.origin, gone))

    def _check_within(self, start: StreamOffset) -> None:
        """Refuse a query whose position is after the end of the log; no option permits this."""
        if self._log.place.is_listed:
            return  # There, the end of a partition without files is unknown.
        for key, partition in self._partitions(start.next).items():
            name = self._log.state.topics.by_id[key[0]].name
            check_reached(name, partition, start.next[key])

    def _with_new(self, start: StreamOffset) -> StreamOffset:
        """Add new partitions, from their log start."""
        new = [
            subject
            for subject in self._subjects()
            if _key(subject) not in start.next
            and (self._target is None or _key(subject) in self._target)
        ]
        gaps = [
            Gap(
                subject.topic.name,
                subject.partition.index,
                0,
                subject.partition.log_start,
                "too old by now",
            )
            for subject in new
            if subject.partition.log_start
        ]
        handle_gaps(self._options, gaps)
        begins = {_key(subject): subject.partition.log_start for subject in new}
        return StreamOffset({**start.next, **begins}, {**start.origin, **begins})

    def _apply_limits(
        self, begins: Mapping[Key, int], ends: dict[Key, int], max_records: int
    ) -> dict[Key, int]:
        """Apply the limits to a batch; return an empty batch if it would be too small."""
        bounds = self._options.pace
        total = sum(ends[key] - begins[key] for key in ends)
        if self._target is None and self._is_too_small(total):
            return dict(begins)
        if bounds.max_bytes is not None:
            ends = pace.by_bytes(self._partitions(ends), begins, ends, bounds.max_bytes)
        return pace.by_records(begins, ends, max_records)

    def _is_too_small(self, total: int) -> bool:
        bounds, now = self._options.pace, self._log.clock.monotonic_ms()
        is_due = self._fired_ms is None or now - self._fired_ms >= bounds.max_delay_ms
        if bounds.min_offsets is not None and total < bounds.min_offsets and not is_due:
            return True
        if total:
            self._fired_ms = now
        return False

    def _partitions(self, keys: Iterable[Key]) -> dict[Key, Partition]:
        topics = self._log.state.topics
        partitions = {key: topics.partition(*key) for key in keys}
        return {key: partition for key, partition in partitions.items() if partition is not None}


def _key(subject: SubscribedPartition) -> Key:
    return subject.topic.id, subject.partition.index


def _between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Return the ranges that a batch reads."""
    wanted = [OffsetRange(*key, start.begin(key, end), end.next[key]) for key in end.next]
    return [range_ for range_ in wanted if range_.begin < range_.end]


def _but(numbers: Mapping[Key, int], gone: list[Key]) -> dict[Key, int]:
    return {key: number for key, number in numbers.items() if key not in gone}
