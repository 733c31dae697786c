"""The consumer of kafkars: one batch per `poll`, and the state of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.librdkafka import client_settings, config_text
from rookery.client.settings import ClientSettings
from rookery.consumer.api import replay
from rookery.consumer.positions import Offsets, Position
from rookery.direct.blockinglog import LoopThread
from rookery.errors import ConfigError
from rookery.kafkars.schemas import (
    MESSAGE_COLUMNS,
    MESSAGE_SCHEMA,
    NO_TIME,
    PARTITION_STATE_SCHEMA,
)
from rookery.kafkars.sourcetopic import AnySourceTopic, SourceTopic, check_topics, source_topic
from rookery.model.partition import TopicPartition

BATCH_SIZE: Final = 10_000
MAX_BATCH_SIZE: Final = 100_000_000
HELD_BATCHES: Final = 5
"""The maximum number of batches of rows held in memory. More are held if one Kafka batch of each
partition exceeds this, because ordering requires it."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The state of one partition."""

    topic: str
    partition: int
    replay_start_offset: int
    replay_end_offset: int
    """The end offset when the manager was created."""
    consumed_offset: int
    """The next offset to fetch."""
    released_offset: int
    """The next offset that `poll` returns; all earlier offsets were returned."""
    low_water_mark_ms: int | None
    """No future row of the partition orders before this time; None: no broker has answered yet."""
    held: int
    """The number of rows that were decoded but not yet returned."""
    held_bytes: int
    """The bytes that the partition holds in memory, decoded or not."""
    is_paused: bool
    """Whether fetching is paused because the partition is ahead of the others."""
    is_live: bool
    """Whether every row up to `replay_end_offset`, or up to the cutoff, was returned."""


class ConsumerManager:
    """Reads topics in order of time and returns one batch per `poll`."""

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Sequence[AnySourceTopic | Mapping[str, Any]],
        batch_size: int | None = None,
        *,
        cutoff_ms: int | None = None,
    ) -> None:
        """Connect and determine the start and end offset of every partition.

        Args:
            config: librdkafka's keys; keys without effect are ignored with one warning.
            topics: the topics with their starts; kafkarrow's objects and mappings also work.
            batch_size: the maximum number of rows that `poll` returns; None: `BATCH_SIZE`.
            cutoff_ms: a time at which the manager counts as live, even if more rows exist by then.

        Raises:
            ConfigError: a key, a topic or a number cannot be used.
            ApiError: a topic does not exist, or access to it is denied.
            Unavailable: no broker can be reached.
        """
        batch_size = BATCH_SIZE if batch_size is None else batch_size
        if not 1 <= batch_size <= MAX_BATCH_SIZE:
            raise ConfigError(
                f"batch_size={batch_size}: must be 1 to {MAX_BATCH_SIZE}; a time is given as "
                "cutoff_ms="
            )
        sources = [source_topic(topic) for topic in topics]
        check_topics(sources)
        config = config_text(config)
        settings = client_settings(config)
        starts = {source.name: source.position() for source in sources}
        starts |= _commits(settings, config.get("group.id", ""), sources)
        self._cutoff_ms = cutoff_ms
        self._is_live = False
        self._stream = replay(
            settings,
            [source.name for source in sources],
            start=starts,
            then="live",
            columns=list(MESSAGE_COLUMNS),
            exact_start=False,
            isolation=_isolation(config),
            batch_rows=batch_size,
            max_held_rows=HELD_BATCHES * batch_size,
            batch_wait=timedelta(0),
            # A partition at its end must not hold back the rows of the others.
            max_idle=timedelta(0),
            max_transaction_wait=timedelta(0),
        ).open()

    def poll(self, timeout_ms: int) -> pa.RecordBatch:
        """Return rows as soon as any are released; an empty batch if the timeout expires first.

        Raises:
            Error: a partition cannot be read; no row is lost, and the next call retries.
        """
        batch = self._stream.poll(timeout_ms)
        if batch is None:
            return pa.RecordBatch.from_pylist([], MESSAGE_SCHEMA)
        columns = [batch.data.column(name) for name in MESSAGE_COLUMNS]
        columns[2] = columns[2].cast(pa.string())
        columns[5] = columns[5].fill_null(NO_TIME)
        return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)

    def is_live(self) -> bool:
        """Return whether every row up to the captured end, or up to the cutoff, was returned."""
        if not self._is_live:
            self._is_live = self._has_passed_cutoff or self._stream.is_live
        return self._is_live

    def partitions(self) -> list[PartitionInfo]:
        """Return the state of every partition, sorted by topic and partition number."""
        rows = self._stream.partitions().to_pylist()
        return sorted(
            (self._info(row) for row in rows), key=lambda info: (info.topic, info.partition)
        )

    def partition_state(self) -> pa.RecordBatch:
        """Return the state of every partition as columns."""
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replay_start_offset": partition.replay_start_offset,
                "replay_end_offset": partition.replay_end_offset,
                "consumed_offset": partition.consumed_offset,
                "released_offset": partition.released_offset,
                "last_consumed_timestamp": partition.low_water_mark_ms,
                "is_live": partition.is_live,
                "is_paused": partition.is_paused,
            }
            for partition in self.partitions()
        ]
        return pa.RecordBatch.from_pylist(rows, PARTITION_STATE_SCHEMA)

    def low_water_mark(self) -> int | None:
        """Return the time up to which all rows can be returned; None until all have answered."""
        marks = [
            partition.low_water_mark_ms for partition in self.partitions() if not partition.is_live
        ]
        if any(mark is None for mark in marks):
            return None
        return min((mark for mark in marks if mark is not None), default=self._stream.frontier)

    get_priming_watermark = low_water_mark

    def held_message_count(self) -> int:
        """Return the number of rows that were decoded but not yet returned."""
        return sum(partition.held for partition in self.partitions())

    def paused_partition_count(self) -> int:
        """Return the number of partitions paused because they are ahead of the others."""
        return sum(partition.is_paused for partition in self.partitions())

    def close(self) -> None:
        """Close all connections without committing."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _has_passed_cutoff(self) -> bool:
        # Rows are released in order of time: once the frontier reaches the cutoff, all rows before
        # the cutoff have been returned.
        frontier = self._stream.frontier
        return self._cutoff_ms is not None and frontier is not None and frontier >= self._cutoff_ms

    def _info(self, row: Mapping[str, Any]) -> PartitionInfo:
        is_caught_up = row["released"] >= row["end"] or row["start"] >= row["end"]
        seen: datetime | None = row["max_time"]
        return PartitionInfo(
            topic=row["topic"],
            partition=row["partition"],
            replay_start_offset=row["start"],
            replay_end_offset=row["end"],
            consumed_offset=row["position"],
            released_offset=row["released"],
            low_water_mark_ms=None if seen is None else int(seen.timestamp() * 1000),
            held=row["buffered_rows"],
            held_bytes=row["buffered_bytes"],
            is_paused=row["state"] == "held",
            is_live=is_caught_up or self._has_passed_cutoff,
        )


def _commits(
    settings: ClientSettings, group: str, sources: Sequence[SourceTopic]
) -> dict[str, Position]:
    """Look up a group's committed offsets without joining or changing the group."""
    wanted = [source.name for source in sources if source.policy == "committed"]
    if not wanted:
        return {}
    if not group:
        raise ConfigError(f"config: group.id: must be set, as {wanted[0]} begins at its commits")

    async def look() -> dict[str, Position]:
        async with Client(settings) as client:
            starts: dict[str, Position] = {}
            for name in wanted:
                numbers = (await client.topic(name)).partitions
                places = [TopicPartition(name, number) for number in numbers]
                rows = await client.groups.committed_offsets(group, places)
                offsets = {(name, place.partition): row.offset for place, row in rows.items()}
                starts[name] = Offsets(offsets)
            return starts

    thread = LoopThread("rookery-kafkars")  # the caller may already have a running event loop
    try:
        return thread.run(look())
    finally:
        thread.close()


def _isolation(config: Mapping[str, str]) -> Literal["committed", "uncommitted"]:
    level = config.get("isolation.level", "read_committed")
    if level not in {"read_committed", "read_uncommitted"}:
        raise ConfigError(
            f"config: isolation.level={level!r}: choose read_committed or read_uncommitted"
        )
    return "committed" if level == "read_committed" else "uncommitted"
