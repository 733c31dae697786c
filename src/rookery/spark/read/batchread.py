"""Batch reader for topics: the driver plans, and tasks read without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from rookery.direct import latest, timeorder
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.blockingreader import plan_again, reader
from rookery.direct.latest import KeyShare
from rookery.direct.log import DirectLog
from rookery.direct.offsets import SubscribedPartition
from rookery.direct.pins import Pins
from rookery.direct.place import check_host, host_mark
from rookery.direct.timeorder import SpanShare
from rookery.errors import ConfigError
from rookery.log.read.rangeplan import OffsetRange, PlannedRange, ReadPlanner, TaskSize
from rookery.records.reading import ReadSettings
from rookery.spark import schema
from rookery.spark.gcfreeze import settle, settle_after
from rookery.spark.read.filters import FilterBounds
from rookery.spark.read.gaps import handle_gaps
from rookery.spark.read.options import ReadOptions


@dataclass
class Share(InputPartition):
    """The input of one task."""

    ranges: list[PlannedRange]
    host: str = ""
    """The host whose folder is read; empty if any host can read it."""
    keys: KeyShare | None = None
    """If set, the task returns only the last record of each of these keys."""
    span: SpanShare | None = None
    """If set, the task returns the records of this span ordered by timestamp."""


class BatchReader(DataSourceReader):
    """Plans and reads one DataFrame; it is serialised to the tasks, so it holds only options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._bounds = FilterBounds()

    def partitions(self) -> Sequence[Share]:
        """Plan the tasks, once per DataFrame.

        Raises:
            ConfigError: an option names something that does not exist.
            Conflict: requested offsets no longer exist.
        """
        with BlockingLog(self._options.place, "spark-source") as log:
            shares = log.run(log.log.plan(lambda: self._plan(log.log)))
        mark = host_mark(self._options.place)
        settle()
        return [replace(share, host=mark) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's records."""
        if not isinstance(partition, Share):
            return iter(())  # Spark calls it once even if there are no partitions
        check_host(self._options.place, partition.host)
        return settle_after(self._rows(partition))

    def _rows(self, share: Share) -> Iterator[pa.RecordBatch]:
        if share.keys is not None:
            return read_latest(self._options, share.ranges, share.keys)
        if share.span is not None:
            return read_ordered(self._options, share.span)
        return read_ranges(self._options, share.ranges)

    async def _plan(self, log: DirectLog) -> list[Share]:
        options = self._options
        planner = ReadPlanner(log, is_committed=options.is_committed)
        wanted = await self._find_ranges(log)
        await self._pin(log, wanted)
        ranges = await planner.plan(wanted, self._bounds.time_ms)
        handle_gaps(options, planner.gaps)
        cut = choose_task_size(options)
        if options.is_latest_per_key:
            key_shares = latest.shares(ranges, cut.tasks(sum(range_.size for range_ in ranges)))
            return [Share(many, keys=keys) for many, keys in key_shares]
        if options.is_ordered:
            spans = await timeorder.span_shares(log, ranges, options.min_partitions)
            return [Share([], span=span) for span in spans]
        return [Share(many) for many in await planner.tasks(ranges, cut)]

    async def _pin(self, log: DirectLog, wanted: list[OffsetRange]) -> None:
        """Pin the ranges against compaction; Spark does not report when the tasks have finished."""
        starts = {
            (range_.topic_id, range_.partition): range_.begin
            for range_ in wanted
            if range_.begin < range_.end
        }
        await Pins(log, self._options.pin_ms).hold_from(starts)

    async def _find_ranges(self, log: DirectLog) -> list[OffsetRange]:
        options = self._options
        subjects = [
            subject
            for subject in options.subscription.find(log.state)
            if self._bounds.admits(subject)
        ]
        committed = options.is_committed
        begins = await options.start.resolve(log, subjects, is_committed=committed)
        ends = await options.end.resolve(log, subjects, is_committed=committed)
        for subject in subjects:
            self._check_start(subject, begins[_key(subject)], ends[_key(subject)])
        return [
            self._bounds.within(OffsetRange(*key, begins[key], ends[key]))
            for key in map(_key, subjects)
        ]

    def _check_start(self, subject: SubscribedPartition, begin: int, end: int) -> None:
        """Refuse a start after the end, as Spark's Kafka source does.

        Raises:
            ConfigError: the start is an offset that the log or the read does not reach.
        """
        if not self._options.end.is_by_offset:
            # While a transaction is open, the readable range ends before the log does.
            end = max(end, subject.partition.next_offset)
        if self._options.start.is_by_offset and begin > end:
            raise ConfigError(
                f"startingOffsets: {subject.name} starts at {begin}, after its end, {end}; choose "
                "an offset that is not above the end, or latest (-1)"
            )


class FilteringReader(BatchReader):
    """A reader that accepts filters.

    Spark refuses such a reader unless filter pushdown is enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Skip records that the filters exclude; Spark applies every filter to each row again."""
        bounds = FilterBounds.of(filters)
        # The last record of a key is known only after all records of the partition are read.
        self._bounds = bounds.whole_partitions() if self._options.is_latest_per_key else bounds
        return filters


def batch_reader(options: ReadOptions) -> BatchReader:
    """Return the reader for options: one that accepts filters if pushdown is enabled."""
    return FilteringReader(options) if options.is_pushed else BatchReader(options)


def read_ranges(options: ReadOptions, ranges: Sequence[PlannedRange]) -> Iterator[pa.RecordBatch]:
    """Yield the records of planned ranges in Spark's column types."""
    decoded = _decode(options, ranges, schema.choose_settings(options.columns))
    return schema.to_spark(decoded, options.columns)


def read_latest(
    options: ReadOptions, ranges: Sequence[PlannedRange], keys: KeyShare
) -> Iterator[pa.RecordBatch]:
    """Yield the last record of every key, partition by partition."""
    reading = schema.choose_settings(dict.fromkeys((*options.columns, "key", "value")))
    for range_ in ranges:
        kept = latest.latest(_decode(options, [range_], reading), keys)
        yield from schema.to_spark(kept, options.columns)


def read_ordered(options: ReadOptions, share: SpanShare) -> Iterator[pa.RecordBatch]:
    """Yield the records of a span of time in order."""
    reading = schema.choose_settings(options.columns)

    def read(range_: PlannedRange, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return _decode(options, [range_], replace(reading, columns=tuple(names)))

    def again(range_: PlannedRange, begin: int, end: int) -> PlannedRange | None:
        return plan_again(
            options.place, range_, begin, lambda gaps: handle_gaps(options, gaps), end=end
        )

    batches = timeorder.read_in_order(share, reading.columns, read, again)
    return schema.to_spark(batches, options.columns)


def _decode(
    options: ReadOptions, ranges: Sequence[PlannedRange], reading: ReadSettings
) -> Iterator[pa.RecordBatch]:
    return reader(options.place).columns(ranges, reading, lambda gaps: handle_gaps(options, gaps))


def choose_task_size(options: ReadOptions) -> TaskSize:
    """Return how much one task reads.

    The planner knows only this host's cores, not the cluster's; minPartitions sets the number of
    tasks.
    """
    return TaskSize(
        cores=os.cpu_count() or 2,
        min_tasks=options.min_partitions,
        max_records=options.max_records,
    )


def _key(subject: SubscribedPartition) -> tuple[bytes, int]:
    return subject.topic.id, subject.partition.index
