"""Rookery's own objects as a source, which needs no running broker.

The state of the log contains the location of every batch. A state with more to read need not be
current. At its end, newer commits are read from the cluster log.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

from rookery.client.connect.retry import PersistentError
from rookery.cluster.state import aborts
from rookery.cluster.state.partition import Partition
from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.consumer.fetch.source import PartitionAnswer, Want
from rookery.direct.log import DirectLog
from rookery.direct.offsets import end_of
from rookery.direct.place import ClusterAddress
from rookery.errors import ApiError, ConfigError, Conflict, Error, ErrorCode, Unavailable
from rookery.log.read import times
from rookery.model.offset import EARLIEST, LATEST, CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.records import batches

_LANE: Final = "objects"
_AT_ONCE: Final = 16
_LEAST_BYTES: Final = 256 * 1024
_TRIES: Final = 10


class ObjectSource:
    """Reads partitions directly from their objects."""

    def __init__(self, log: DirectLog, *, is_committed: bool) -> None:
        self._log = log
        self._is_committed = is_committed
        self._topic_ids: dict[str, bytes] = {}

    @classmethod
    async def open(cls, place: ClusterAddress, *, is_committed: bool) -> ObjectSource:
        """Open the log and read its state.

        Raises:
            ConfigError: there is no log at the place.
            Corrupt: the data there is corrupt.
            Unavailable: the store or the cluster log cannot be reached.
        """
        log = DirectLog(place, "consumer")
        try:
            await log.start()
        except BaseException:
            await log.close()
            raise
        return cls(log, is_committed=is_committed)

    async def topics(
        self, names: Sequence[str], pattern: re.Pattern[str] | None
    ) -> dict[str, list[int]]:
        """Return the partitions of topics, by name or by pattern."""
        state = await self._log.barrier()
        known = state.topics.by_name
        if pattern is not None:
            names = sorted(name for name in known if pattern.fullmatch(name))
        numbers = {}
        for name in names:
            topic = known.get(name)
            if topic is None:
                raise PersistentError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} does not exist; create it first, or check its name",
                )
            self._topic_ids.setdefault(name, topic.id)
            numbers[name] = list(range(len(topic.partitions)))
        return numbers

    async def find(
        self, specs: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offsets for EARLIEST, LATEST or times."""
        offsets = {}
        for place, spec in specs.items():
            partition = self._partition(place)
            if spec == EARLIEST:
                offsets[place] = partition.log_start
            elif spec == LATEST:
                offsets[place] = end_of(partition, is_committed=is_committed)
            else:
                offsets[place] = await self._first_at(place, partition, spec)
        return offsets

    async def _first_at(self, place: TopicPartition, partition: Partition, time_ms: int) -> int:
        if self._log.place.is_listed:
            raise ConfigError("a time: these segments have no times; begin at an offset instead")
        key = (self._topic_ids[place.topic], place.partition)
        record = await times.first_at(self._log.reader, key, partition, time_ms)
        return -1 if record is None else record.offset

    async def committed(
        self, group: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        """Return a group's committed positions."""
        known = self._log.state.groups.by_id.get(group)
        marks = {}
        for place in places:
            row = known.offset(self._topic_ids[place.topic], place.partition) if known else None
            if row is not None:
                marks[place] = PartitionMark.of_commit(
                    CommittedOffset(row.offset, row.metadata or "")
                )
        return marks

    async def commit(self, group: str, checkpoint: Checkpoint) -> None:  # noqa: ARG002 (the port's)
        """Raise: committing requires a group coordinator, which is a broker."""
        raise ConfigError(
            f"group={group!r}: commits need a broker; keep batch.checkpoint instead, or read by "
            "bootstrap addresses"
        )

    async def locate(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Hashable]:
        """Return the same lane for all partitions: they can be read together."""
        return dict.fromkeys(places, _LANE)

    def forget(self, place: TopicPartition) -> None:
        """Do nothing: locations are looked up for each read."""

    async def fetch(
        self, lane: Hashable, wants: Sequence[Want], max_bytes: int, wait_ms: int
    ) -> list[PartitionAnswer]:
        """Read from partitions."""
        del lane  # there is only one
        if all(self._is_at_end(want) for want in wants):
            await self._log.barrier()
            if all(self._is_at_end(want) for want in wants):
                await asyncio.sleep(wait_ms / 1000)
        count = max(1, max_bytes // _LEAST_BYTES)
        each = max(1, max_bytes // min(count, len(wants)))
        limit = asyncio.Semaphore(_AT_ONCE)
        some = [self._read(want, min(want.max_bytes, each), limit) for want in wants[:count]]
        skipped = [
            PartitionAnswer(want.place, want.offset, is_skipped=True) for want in wants[count:]
        ]
        return [*await asyncio.gather(*some), *skipped]

    def _is_at_end(self, want: Want) -> bool:
        try:
            partition = self._partition(want.place)
        except ApiError:
            return False
        return want.offset >= end_of(partition, is_committed=self._is_committed)

    async def _read(self, want: Want, max_bytes: int, limit: asyncio.Semaphore) -> PartitionAnswer:
        async with limit:
            try:
                return await self._read_from(want, max_bytes)
            except Error as error:
                return PartitionAnswer(want.place, want.offset, error=error)

    async def _read_from(self, want: Want, max_bytes: int) -> PartitionAnswer:
        key = (self._topic_ids[want.place.topic], want.place.partition)
        for _ in range(_TRIES):
            partition = self._partition(want.place)
            self._check_range(want, partition)
            end = end_of(partition, is_committed=self._is_committed)
            high, stable = partition.next_offset, partition.last_stable_offset
            if want.offset >= end:
                return PartitionAnswer(
                    want.place, want.offset, high_watermark=high, last_stable_offset=stable
                )
            # Before the read: a newer list may lack transactions whose records are still read.
            listed = partition.aborted
            try:
                stored = await self._log.reader.read(
                    key, partition, want.offset, max_bytes, until=end
                )
            except Conflict:
                await self._log.barrier()  # the batches were rewritten and moved
                continue
            data = memoryview(b"".join(stored.parts))
            headers = batches.outline(data)  # the reader has verified them
            return PartitionAnswer(
                want.place,
                want.offset,
                data,
                headers,
                self._find_aborted(listed, want.offset, stored.next_offset),
                high,
                stable,
                stored.next_offset,
            )
        raise Unavailable(f"{want.place.text}: its objects are rewritten faster than read")

    def _find_aborted(self, listed: array[int], begin: int, end: int) -> list[tuple[int, int]]:
        if not self._is_committed:
            return []
        aborted = aborts.within(listed, begin, end)
        return [(transaction.producer_id, transaction.first_offset) for transaction in aborted]

    def _check_range(self, want: Want, partition: Partition) -> None:
        if not partition.log_start <= want.offset <= partition.next_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{want.place.text} holds {partition.log_start} to {partition.next_offset - 1}",
            )

    def _partition(self, place: TopicPartition) -> Partition:
        topic = self._log.state.topics.by_id.get(self._topic_ids.get(place.topic, b""))
        if topic is None or place.partition >= len(topic.partitions):
            raise PersistentError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {place.topic!r} was deleted"
            )
        return topic.partitions[place.partition]

    async def close(self) -> None:
        """Close the log."""
        await self._log.close()
