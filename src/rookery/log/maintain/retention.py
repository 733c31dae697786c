"""Retention: deletes records by age and size, and expires idle producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rookery.clock import Clock
from rookery.cluster.events.logevents import IdleProducer, ProducersExpired
from rookery.cluster.events.topicevents import LogStartMoved
from rookery.cluster.replica import Replica
from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.log.maintain.quarantine import Quarantine
from rookery.wire.message import Message

_PRODUCERS_AT_ONCE: Final = 1000


class RetentionLimits(Protocol):
    """The settings of a topic that retention needs; -1 means no limit."""

    @property
    def retention_ms(self) -> int:
        """How long records are kept."""

    @property
    def retention_bytes(self) -> int:
        """How many bytes of a partition are kept."""

    @property
    def is_deleted(self) -> bool:
        """Whether old records are deleted at all (cleanup.policy)."""


class Retention:
    """Moves log starts and expires producers by events."""

    def __init__(
        self, replica: Replica, clock: Clock, limits: Callable[[Topic], RetentionLimits]
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._limits = limits
        self.quarantine = Quarantine(clock)

    async def retain(self) -> int:
        """Move log starts past records beyond the limits; return the number of partitions moved."""
        now = self._clock.now_ms()

        def moved(topic: Topic, partition: Partition) -> Message | None:
            offset = kept_from(partition, self._limits(topic), now)
            if offset <= partition.log_start:
                return None
            return LogStartMoved(topic_id=topic.id, partition=partition.index, offset=offset)

        events = self._events("retention", moved)
        await self._replica.propose_all(events)
        return len(events)

    async def expire_producers(self, idle_ms: int) -> int:
        """Expire producers that have been idle for a given time; return their number."""
        before = self._clock.now_ms() - idle_ms
        count = 0

        def expired(topic: Topic, partition: Partition) -> Message | None:
            nonlocal count
            idle = [
                IdleProducer(
                    producer_id=producer_id,
                    last_sequence=known.last_sequence,
                    time_ms=known.time_ms,
                )
                for producer_id, window in partition.producers.items()
                if (known := producers.describe(window)).time_ms < before
                # Without its window, a duplicate batch of an open transaction would count twice.
                and producer_id not in partition.ongoing
            ][:_PRODUCERS_AT_ONCE]
            count += len(idle)
            if not idle:
                return None
            return ProducersExpired(topic_id=topic.id, partition=partition.index, producers=idle)

        await self._replica.propose_all(self._events("expiry of producers", expired))
        return count

    def _events(
        self, work: str, make: Callable[[Topic, Partition], Message | None]
    ) -> list[Message]:
        """Return an event for every partition that needs one; a partition that fails is skipped."""
        events = []
        topics = self._replica.state.topics
        self.quarantine.keep(lambda key: key[1] in topics.by_id)
        for topic in topics:
            for partition in topic.partitions:
                key = work, topic.id, partition.index
                if self.quarantine.holds(key):
                    continue
                with self.quarantine.guard(
                    key, f"{work} of topic {topic.name} partition {partition.index}"
                ):
                    if event := make(topic, partition):
                        events.append(event)
        return events


def kept_from(partition: Partition, limits: RetentionLimits, now_ms: int) -> int:
    """Return the offset from which a partition's records are kept, by age and by size."""
    if not limits.is_deleted:
        return partition.log_start
    offset, size = partition.log_start, partition.size_bytes
    for index in range(len(partition.base_offsets)):
        row = partition.row(index)
        is_old = 0 <= limits.retention_ms < now_ms - row.max_timestamp
        # As in Kafka: a row is kept if deleting it would leave less than the limit.
        is_over = 0 <= limits.retention_bytes <= size - row.size
        if not (is_old or is_over):
            break
        offset = row.end_offset
        size -= row.size
    return offset
