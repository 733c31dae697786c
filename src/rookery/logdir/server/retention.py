"""Finds the segments that are past retention, and decides whether they may be deleted.

Opening a foreign disk must not empty it. Unless retention is confirmed, existing topics keep
everything until an administrator changes their retention.
"""

from __future__ import annotations

from typing import NamedTuple

from rookery.cluster.events.topicevents import LogStartMoved
from rookery.logdir.server.limits import LimitsOf, SegmentLimits
from rookery.logdir.server.loadeddirectory import Key, LoadedDirectory
from rookery.logdir.writer.appendlog import AppendLog, HeldSegment
from rookery.model.partition import TopicPartition


class OverduePartition(NamedTuple):
    """A partition with segments that are past retention."""

    key: Key
    name: TopicPartition
    offset: int
    """Everything below it is past retention."""
    segments: int
    size_bytes: int
    is_held: bool
    """Whether they are kept anyway."""

    @property
    def event(self) -> LogStartMoved:
        """The event that deletes them."""
        topic_id, partition = self.key
        return LogStartMoved(topic_id=topic_id, partition=partition, offset=self.offset)


class SegmentRetention:
    """The retention of one directory; only whole segments are deleted."""

    def __init__(self, loaded: LoadedDirectory, limits: LimitsOf, *, is_confirmed: bool) -> None:
        self._loaded = loaded
        self._limits = limits
        topics = () if is_confirmed else loaded.state.topics
        self._held = {topic.id: _bounds(limits(loaded.state, topic)) for topic in topics}
        """Topics that keep everything as long as they have these limits."""

    def find_overdue(self, now_ms: int) -> list[OverduePartition]:
        """Return the partitions with segments to delete, held or not."""
        return [
            partition
            for key, log in list(self._loaded.logs.items())
            if (partition := self._of(key, log, now_ms)) is not None
        ]

    def _of(self, key: Key, log: AppendLog, now_ms: int) -> OverduePartition | None:
        state = self._loaded.state
        topic, partition = state.topics.by_id.get(key[0]), state.topics.partition(*key)
        if topic is None or partition is None:
            return None
        limits = self._limits(state, topic)
        segments = _find_overdue(log, limits, now_ms)
        if not segments:
            return None
        ends = [*(held.base_offset for held in log.held[1:]), log.next_offset]
        offset = ends[len(segments) - 1]
        if offset <= partition.log_start:
            return None
        size = sum(held.size for held in segments)
        is_held = self._held.get(topic.id) == _bounds(limits)
        return OverduePartition(key, log.name, offset, len(segments), size, is_held)


def describe(overdue: list[OverduePartition]) -> str:
    """Describe how much of a directory is past retention."""
    segments, size = sum(row.segments for row in overdue), sum(row.size_bytes for row in overdue)
    shown = ", ".join(f"{row.name.text} below offset {row.offset}" for row in overdue[:3])
    more = ", …" if len(overdue) > 3 else ""
    return (
        f"{_plural(segments, 'segment')} of {_plural(len(overdue), 'partition')} "
        f"({shown}{more}; {size} bytes)"
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _bounds(limits: SegmentLimits) -> tuple[bool, int, int]:
    return limits.is_deleted, limits.retention_ms, limits.retention_bytes


def _find_overdue(log: AppendLog, limits: SegmentLimits, now_ms: int) -> list[HeldSegment]:
    """Return the oldest segments of a partition that exceed the time or size limit."""
    overdue: list[HeldSegment] = []
    if not limits.is_deleted:
        return overdue
    size = sum(segment.size for segment in log.held)
    for segment in log.held:
        is_old = segment.largest >= 0 and 0 <= limits.retention_ms < now_ms - segment.largest
        # As in Kafka, a segment is kept if less than the limit would remain without it.
        is_over = 0 <= limits.retention_bytes <= size - segment.size
        if not segment.size or not (is_old or is_over):
            break
        overdue.append(segment)
        size -= segment.size
    return overdue
