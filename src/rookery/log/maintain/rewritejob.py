"""Jobs that rewrite rows: the rows that a job replaces, identified as of the time of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic


class RowRange(NamedTuple):
    """Whole rows of one partition, as of the time when the job was planned."""

    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    fingerprint: int
    size: int

    @property
    def owner(self) -> tuple[bytes, int]:
        """The topic's id and the partition."""
        return self.topic_id, self.partition


class RewriteJob(Protocol):
    """A job that rewrites rows."""

    @property
    def kind(self) -> str:
        """The kind of job, for the metrics."""

    @property
    def size(self) -> int:
        """Bytes that are read."""


@dataclass(frozen=True, slots=True)
class MergeJob:
    """Merges rows of many partitions into one shared object."""

    kind: ClassVar[str] = "merge"
    ranges: tuple[RowRange, ...]

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(part.size for part in self.ranges)


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """Turns rows of one partition into a segment."""

    kind: ClassVar[str] = "segment"
    range: RowRange

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return self.range.size


def range_of(topic: Topic, partition: Partition, rows: range) -> RowRange:
    """Return the range that identifies some rows of a partition."""
    return RowRange(
        topic.id,
        partition.index,
        partition.base_offsets[rows.start],
        partition.row(rows.stop - 1).end_offset,
        partition.fingerprint(rows),
        sum(partition.sizes[rows.start : rows.stop]),
    )


def divide_merge(state: State, job: MergeJob) -> list[MergeJob]:
    """Split a merge into halves: by ranges, or by the rows of its only range."""
    middle = len(job.ranges) // 2
    if middle:
        return [MergeJob(job.ranges[:middle]), MergeJob(job.ranges[middle:])]
    [whole] = job.ranges
    partition = state.topics.partition(*whole.owner)
    span = partition.span(whole.base_offset, whole.end_offset) if partition else None
    if partition is None or span is None or len(span) == 1:
        return []
    topic, middle = state.topics.by_id[whole.topic_id], len(span) // 2
    halves = (span[:middle], span[middle:])
    return [MergeJob((range_of(topic, partition, half),)) for half in halves]
