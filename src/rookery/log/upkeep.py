"""What one broker does for the log of all, now and then: payloads, retention, journals, producers.

Every step proposes events and does nothing that an event does not allow: two brokers that both
take themselves for the caretaker leave orphans at worst.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from rookery.clock import Clock
from rookery.cluster.entry import read_entry
from rookery.cluster.events.log import (
    IdleProducer,
    ObjectsDropped,
    PayloadMove,
    PayloadsMoved,
    ProducersExpired,
)
from rookery.cluster.events.topics import LogStartMoved
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.topics import Topic
from rookery.formats.keys import split_object_id
from rookery.log.cache import BlockCache
from rookery.log.files import Files
from rookery.log.journal import Journal
from rookery.wire.buffer import Buffer
from rookery.wire.message import Message

log = logging.getLogger(__name__)

# So much is moved out of entries in one step.
_MOVE_BYTES: Final = 4 * 1024 * 1024
# … and so many: applying more at once would keep clients waiting.
_MOVES_AT_ONCE: Final = 500
_EVENTS_AT_ONCE: Final = 500


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


class Upkeep:
    """The caretaker's work on the log."""

    def __init__(
        self,
        replica: Replica,
        cluster_log: ClusterLog,
        files: Files,
        cache: BlockCache,
        clock: Clock,
        limits: Callable[[Topic], Limits],
    ) -> None:
        self._replica = replica
        self._log = cluster_log
        self._files = files
        self._cache = cache
        self._clock = clock
        self._limits = limits
        self._empty_since: dict[int, int] = {}

    async def move_payloads(self, journal: Journal, keep: int = 0) -> None:
        """Bring the payloads of entries into the journal, all but the newest `keep`.

        Entries cannot be trimmed while batches live in them. What comes meanwhile is left for the
        next time: under load there would be no end to it.
        """
        numbers = sorted(-one for one in self._replica.state.payloads)
        numbers = numbers[: max(0, len(numbers) - keep)]
        while numbers:
            count = await self._move(journal, numbers)
            numbers = [one for one in numbers[count:] if -one in self._replica.state.payloads]

    async def _move(self, journal: Journal, numbers: list[int]) -> int:
        """Move the first of these payloads, as many as go in one step; return how many."""
        parts: list[Buffer] = []
        sizes: list[int] = []
        for number in numbers[:_MOVES_AT_ONCE]:
            payload = await self._payload(number)
            parts.append(payload)
            sizes.append(len(payload))
            if sum(sizes) >= _MOVE_BYTES:
                break
        written = await journal.append(parts)
        moves, position = [], written.position
        for number, size in zip(numbers, sizes, strict=False):
            moves.append(PayloadMove(entry=number, object_id=written.object_id, position=position))
            position += size
        await self._replica.propose([PayloadsMoved(moves=moves)])
        return len(moves)

    async def _payload(self, number: int) -> Buffer:
        [entry, *_] = await self._log.read(number - 1, 1)
        payload = read_entry(number, entry.data).payload
        assert isinstance(payload, memoryview)  # noqa: S101 (what is read is a view)
        return payload

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
            ]
            if idle:
                count += len(idle)
                events.append(
                    ProducersExpired(
                        topic_id=topic.id, partition=partition.index, producers=idle[:1000]
                    )
                )
        await self._propose(events)
        return count

    async def drop_journals(self, journal: Journal, delay_ms: int) -> int:
        """Unlink journals that nothing has lived in for `delay_ms`; return how many.

        Only those of which nobody can commit anything any more: of processes that are gone, and
        our own before the present one.
        """
        state, now = self._replica.state, self._clock.monotonic_ms()
        empty = {
            found.object_id
            for found in await self._files.found()
            if not state.objects.get(found.object_id)
            and self._is_closed(found.object_id, journal.current)
        }
        self._empty_since = {one: self._empty_since.get(one, now) for one in empty}
        gone = [one for one, since in self._empty_since.items() if now - since >= delay_ms]
        for object_id in gone:
            self._cache.invalidate(object_id)
            self._files.forget(object_id)
            await journal.unlink(object_id)
            log.info("removed a journal in which nothing lived", extra={"key": object_id})
        if gone:
            await self._replica.propose([ObjectsDropped(object_ids=gone)])
        return len(gone)

    def _is_closed(self, object_id: int, current: int | None) -> bool:
        incarnation, _ = split_object_id(object_id)
        if incarnation == self._replica.incarnation:
            return current is not None and object_id < current
        return incarnation not in self._replica.state.brokers.sequences

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
