"""Selects the partitions to read and resolves offsets and timestamps to offset ranges.

The terms are those of Spark's Kafka source: earliest, latest, offsets or timestamps per partition,
or one timestamp for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Conflict
from rookery.log.read import times

EARLIEST: Final = -2
LATEST: Final = -1
"""Placeholders for offsets, as in Kafka's own requests."""

PerPartition = Mapping[str, Mapping[int, int]]
"""By topic and partition: an offset, or a timestamp in milliseconds."""


class SubscribedPartition(NamedTuple):
    """A partition and its topic."""

    topic: Topic
    partition: Partition

    @property
    def name(self) -> str:
        """The display name, such as `orders-3`."""
        return f"{self.topic.name}-{self.partition.index}"


@dataclass(frozen=True, slots=True)
class DirectSubscription:
    """The partitions to read: of topics by name or by pattern, or individual partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that must match the whole name."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def find(self, state: State, *, is_strict: bool = True) -> list[SubscribedPartition]:
        """Return the current partitions, by topic and number.

        Args:
            state: the state of the cluster.
            is_strict: whether all named topics and partitions must exist.

        Raises:
            ConfigError: a named topic or partition does not exist.
        """
        return list(self._find(state, is_strict=is_strict))

    def _find(self, state: State, *, is_strict: bool) -> Iterator[SubscribedPartition]:
        for topic in self._topics(state, is_strict=is_strict):
            wanted = self.assigned.get(topic.name, range(len(topic.partitions)))
            for index in sorted(set(wanted)):
                if index >= len(topic.partitions):
                    if not is_strict:
                        continue
                    raise ConfigError(
                        f"assign: topic {topic.name} has no partition {index}, only "
                        f"{len(topic.partitions)}"
                    )
                yield SubscribedPartition(topic, topic.partitions[index])

    def _topics(self, state: State, *, is_strict: bool) -> list[Topic]:
        if self.pattern:
            matches = re.compile(self.pattern).fullmatch
            return [topic for name, topic in sorted(state.topics.by_name.items()) if matches(name)]
        names = sorted({*self.topics, *self.assigned})
        missing = [name for name in names if name not in state.topics.by_name]
        if missing and is_strict:
            raise ConfigError(f"there is no topic {', '.join(missing)} in this cluster")
        return [state.topics.by_name[name] for name in names if name not in missing]


@dataclass(frozen=True, slots=True)
class Position:
    """One end of a read; timestamps override offsets, and offsets override the common offset."""

    offset: int = EARLIEST
    """For every partition: EARLIEST or LATEST."""
    offsets: PerPartition | None = None
    time_ms: int | None = None
    """For every partition: the first record that is not older."""
    times: PerPartition | None = None
    if_none: Literal["error", "latest"] = "latest"
    """What to do if all records are older than the timestamp."""

    @property
    def is_by_offset(self) -> bool:
        """Whether each partition has its own offset."""
        return self.offsets is not None and self.times is None and self.time_ms is None

    async def resolve(
        self, log: DirectLog, subjects: list[SubscribedPartition], *, is_committed: bool
    ) -> dict[tuple[bytes, int], int]:
        """Return the offset for every partition, by topic id and partition.

        Raises:
            ConfigError: a partition is not named, or has no record at its timestamp.
            Corrupt, Conflict, Unavailable: as `times.first_at`.
        """
        self._check_names(subjects)
        if not log.place.has_times and (self.time_ms is not None or self.times is not None):
            raise ConfigError(
                f"layout={log.place.layout}: its segments have no times; read them from an offset "
                "on, and filter by timestamp"
            )
        return {
            (subject.topic.id, subject.partition.index): await self._offset(
                log, subject, end_of(subject.partition, is_committed=is_committed)
            )
            for subject in subjects
        }

    async def _offset(self, log: DirectLog, subject: SubscribedPartition, end: int) -> int:
        topic, partition = subject
        time_ms = self._time(subject)
        if time_ms is not None:
            key = (topic.id, partition.index)
            record = await times.first_at(log.reader, key, partition, time_ms)
            if record is None or record.offset >= end:
                if self.if_none == "error":
                    raise ConfigError(
                        f"{subject.name} has no record at {time_ms} or later; choose an earlier "
                        "time, or startingOffsetsByTimestampStrategy=latest"
                    )
                return end
            return record.offset
        offset = self.offset
        if self.offsets is not None:
            offset = self.offsets[topic.name][partition.index]
        if offset == EARLIEST:
            return partition.log_start
        return end if offset == LATEST else offset

    def _time(self, subject: SubscribedPartition) -> int | None:
        if self.time_ms is not None:
            return self.time_ms
        if self.times is None:
            return None
        return self.times[subject.topic.name][subject.partition.index]

    def _check_names(self, subjects: list[SubscribedPartition]) -> None:
        """Reject values for only some of the partitions: those of the others would be undefined."""
        given = self.offsets if self.times is None else self.times
        if given is None or self.time_ms is not None:
            return
        known = {(subject.topic.name, subject.partition.index) for subject in subjects}
        named = {(topic, index) for topic, many in given.items() for index in many}
        if known != named:
            wrong = ", ".join(f"{topic}-{index}" for topic, index in sorted(known ^ named)[:20])
            raise ConfigError(
                "offsets and times must name every partition that is read, and no other; not so: "
                f"{wrong}"
            )


def check_reached(topic: str, partition: Partition, offset: int) -> None:
    """Check that a log reaches an offset that was already read.

    Raises:
        Conflict: it does not. Future records at those offsets will be different ones.
    """
    if partition.next_offset < offset:
        raise Conflict(
            f"{topic}-{partition.index} ends at offset {partition.next_offset}, and was read to "
            f"{offset}: the log was cut, or restored from an old copy. Start again (a stream with "
            "a new checkpoint, a pipeline with a new state, a job with a new name) at an offset "
            "that it has"
        )


def end_of(partition: Partition, *, is_committed: bool) -> int:
    """Return the offset after the last readable record."""
    return partition.last_stable_offset if is_committed else partition.next_offset
