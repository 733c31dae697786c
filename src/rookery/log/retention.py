"""What becomes too old or too much: records that retention takes, producers that are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from rookery.clock import Clock
from rookery.cluster.events.log import IdleProducer, ProducersExpired
from rookery.cluster.events.topics import LogStartMoved
from rookery.cluster.replica import Replica
from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.wire.message import Message

_EVENTS_AT_ONCE: Final = 500
_PRODUCERS_AT_ONCE: Final = 1000


class Limits(Protocol):
    """What retention needs to know of a topic's settings; -1 is without limit."""

    @property
    def retention_ms(self) -> int:
        """How long records are kept."""

    @property
    def retention_bytes(self) -> int:
        """How much of a partition is kept."""

    @property
    def is_deleted(self) -> bool:
        """Whether old records are deleted at all (cleanup.policy)."""


class Retention:
    """Moves log starts and forgets producers, by events."""

    def __init__(self, replica: Replica, clock: Clock, limits: Callable[[Topic], Limits]) -> None:
        self._replica = replica
        self._clock = clock
        self._limits = limits

    async def retain(self) -> int:
        """Move log starts over what is too old or too much; return of how many partitions."""
        now = self._clock.now_ms()
        events: list[Message] = []
        for topic, partition in self._partitions():
            offset = kept_from(partition, self._limits(topic), now)
            if offset > partition.log_start:
                events.append(
                    LogStartMoved(topic_id=topic.id, partition=partition.index, offset=offset)
                )
        await self._propose(events)
        return len(events)

    async def expire_producers(self, idle_ms: int) -> int:
        """Forget producers that have been idle for so long; return how many."""
        before = self._clock.now_ms() - idle_ms
        events: list[Message] = []
        count = 0
        for topic, partition in self._partitions():
            idle = [
                IdleProducer(producer_id=producer_id, last_sequence=known.last_sequence)
                for producer_id, window in partition.producers.items()
                if (known := producers.describe(window)).time_ms < before
            ][:_PRODUCERS_AT_ONCE]
            if idle:
                count += len(idle)
                events.append(
                    ProducersExpired(topic_id=topic.id, partition=partition.index, producers=idle)
                )
        await self._propose(events)
        return count

    def _partitions(self) -> Iterator[tuple[Topic, Partition]]:
        for topic in list(self._replica.state.topics):
            for partition in topic.partitions:
                yield topic, partition

    async def _propose(self, events: list[Message]) -> None:
        for start in range(0, len(events), _EVENTS_AT_ONCE):
            await self._replica.propose(events[start : start + _EVENTS_AT_ONCE])


def kept_from(partition: Partition, limits: Limits, now_ms: int) -> int:
    """Return the offset from which a partition's records are kept, by age and by size."""
    if not limits.is_deleted:
        return partition.log_start
    offset, size = partition.log_start, partition.size_bytes
    for index in range(len(partition.base_offsets)):
        row = partition.row(index)
        is_old = 0 <= limits.retention_ms < now_ms - row.max_timestamp
        # As Kafka does: what would leave less than the limit stays.
        is_over = 0 <= limits.retention_bytes <= size - row.size
        if not (is_old or is_over):
            break
        offset = row.end_offset
        size -= row.size
    return offset
