"""The partitions that a client's fetches wait for, and the results that have arrived. No I/O.

A fetch is answered as soon as the parts that have arrived suffice. Parts that arrive later are
held for the next fetch, if it asks for the same offsets. So nothing that was read is lost, and
nothing is delivered out of order: a partition has at most one result, for the offset asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from rookery.errors import ErrorCode
from rookery.service.fetchsessions import SessionPartition, TopicKey
from rookery.wire.message import Parts
from rookery.wire.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

PartitionKey = tuple[TopicKey, int]
HOLD_MS: Final = 10_000
"""Results that the client does not ask for within this time are dropped."""


class FetchPosition(NamedTuple):
    """The start and the limits of a read of one partition."""

    offset: int
    leader_epoch: int
    last_epoch: int
    isolation_level: int


class NodePartition(SessionPartition):
    """A partition of a client's fetch session."""

    __slots__ = ("last_epoch",)

    def update(self, part: FetchPartition) -> None:
        """Update the client's position and limits."""
        super().update(part)
        self.last_epoch = part.last_fetched_epoch

    def position(self, isolation_level: int) -> FetchPosition:
        """Return the client's position and limits."""
        return FetchPosition(self.offset, self.leader_epoch, self.last_epoch, isolation_level)

    def ask(self) -> FetchPartition:
        """Return the partition of a request to its leader."""
        return FetchPartition(
            partition=self.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=self.last_epoch,
            partition_max_bytes=self.max_bytes,
        )


@dataclass(frozen=True, slots=True)
class HeldResult:
    """A broker's result for a partition."""

    position: FetchPosition
    data: PartitionData
    size: int
    arrived_ms: int
    is_copied: bool = False
    """Whether the records have memory of their own, apart from the broker's answer."""

    @property
    def is_urgent(self) -> bool:
        """Whether the client must get it at once."""
        data = self.data
        has_diverged = data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0
        return data.error_code is not ErrorCode.NONE or has_diverged


class Watermarks(NamedTuple):
    """The last known ends of a partition."""

    high: int = -1
    stable: int = -1
    start: int = -1


class FetchBuffer:
    """The parts of one client's fetches that are under way, and those that have arrived."""

    def __init__(self) -> None:
        self._held: dict[PartitionKey, HeldResult] = {}
        self._asked: dict[int, dict[PartitionKey, FetchPosition]] = {}
        # The positions of the fetch that waits; None if there is none.
        self._wanted: Mapping[PartitionKey, FetchPosition] | None = None
        self._known: dict[PartitionKey, Watermarks] = {}

    @property
    def held_bytes(self) -> int:
        """The bytes of records that wait for the client."""
        return sum(held.size for held in self._held.values())

    def is_asked(self, broker_id: int) -> bool:
        """Return whether a part was sent to a broker and has no answer yet."""
        return broker_id in self._asked

    def begin(self, wanted: Mapping[PartitionKey, FetchPosition], now_ms: int) -> None:
        """Begin a fetch: drop everything that it does not ask for, or that is too old."""
        self._wanted = wanted
        for key in [key for key in self._held if not self._is_current(key, wanted, now_ms)]:
            del self._held[key]
        for key in [key for key in self._known if key not in wanted]:
            del self._known[key]

    def drop(self) -> None:
        """Drop all results; the next fetch asks for them again."""
        self._held.clear()

    def end(self) -> None:
        """End a fetch: copy the held results, so that they do not keep whole answers in memory."""
        self._wanted = None
        for key, held in self._held.items():
            records: Any = held.data.records
            if not held.is_copied and records:
                whole = b"".join(records) if isinstance(records, Parts) else bytes(records)
                held.data.records = whole
                self._held[key] = replace(held, is_copied=True)

    def find_missing(self, wanted: Iterable[PartitionKey]) -> list[PartitionKey]:
        """Return the partitions without a result."""
        return [key for key in wanted if key not in self._held]

    def ask(self, broker_id: int, positions: Mapping[PartitionKey, FetchPosition]) -> None:
        """Record that a part was sent to a broker, which must have answered the one before."""
        self._asked[broker_id] = dict(positions)

    def arrive(
        self,
        broker_id: int,
        results: Iterable[tuple[PartitionKey, PartitionData]],
        now_ms: int,
        *,
        is_probe: bool = False,
    ) -> None:
        """Add a broker's answer to its part.

        Args:
            broker_id: the broker.
            results: the results of its partitions; those that it was not asked for are dropped.
            now_ms: the monotonic time.
            is_probe: whether it was asked without a wait: partitions without records can be
                asked for again.
        """
        asked = self._asked.pop(broker_id, {})
        for key, data in results:
            position = asked.get(key)
            if position is None:
                continue
            size = size_of(data)
            if not data.error_code:
                self._known[key] = Watermarks(
                    data.high_watermark, data.last_stable_offset, data.log_start_offset
                )
            # The part can belong to a fetch before the one that waits, and the client has moved:
            # records from an offset after the wanted one would hide those between them.
            is_wanted = self._wanted is None or self._wanted.get(key) == position
            if is_wanted and (size or (self._wanted is not None and not is_probe)):
                self._held[key] = HeldResult(position, data, size, now_ms)

    def find_held(self, key: PartitionKey) -> HeldResult | None:
        """Return the result of a partition."""
        return self._held.get(key)

    def take(self, key: PartitionKey) -> PartitionData:
        """Remove and return the result of a partition."""
        return self._held.pop(key).data

    def is_known(self, key: PartitionKey) -> bool:
        """Return whether the watermarks of a partition were ever received."""
        return key in self._known or key in self._held

    def nothing_new(self, index: int, key: PartitionKey) -> PartitionData:
        """Return a result without records, with the last known watermarks."""
        known = self._known.get(key, Watermarks())
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            high_watermark=known.high,
            last_stable_offset=known.stable,
            log_start_offset=known.start,
            aborted_transactions=None,
            records=b"",
        )

    def _is_current(
        self, key: PartitionKey, wanted: Mapping[PartitionKey, FetchPosition], now_ms: int
    ) -> bool:
        held = self._held[key]
        return wanted.get(key) == held.position and now_ms - held.arrived_ms <= HOLD_MS


def size_of(data: PartitionData) -> int:
    """Return the bytes of a partition's records."""
    records: Any = data.records
    if not records:
        return 0
    return sum(map(len, records)) if isinstance(records, Parts) else len(records)


def topics_of(partitions: Iterable[tuple[PartitionKey, FetchPartition]]) -> list[FetchTopic]:
    """Return partitions in the form of a request, those of a topic together."""
    topics: dict[TopicKey, FetchTopic] = {}
    for (key, _), part in partitions:
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = (
                FetchTopic(topic_id=key, partitions=[])
                if isinstance(key, bytes)
                else FetchTopic(topic=key, partitions=[])
            )
        topic.partitions.append(part)
    return list(topics.values())


def results_of(
    response: FetchResponse, *, uses_ids: bool
) -> Iterable[tuple[PartitionKey, PartitionData]]:
    """Yield the partitions of an answer with their keys."""
    for topic in response.responses:
        key: TopicKey = topic.topic_id if uses_ids else topic.topic
        for data in topic.partitions:
            yield (key, data.partition_index), data


def choose_results(
    sizes: Iterable[tuple[PartitionKey, int]], max_bytes: int
) -> Collection[PartitionKey]:
    """Return the results that fit a limit; the first one with records is always included."""
    chosen: dict[PartitionKey, None] = {}
    total = 0
    for key, size in sizes:
        if not size or not total or total + size <= max_bytes:
            chosen[key] = None
            total += size
    return chosen
