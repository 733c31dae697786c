"""The interface of kafkars (now kafkarrow), implemented on Rookery's ordered stream.

    manager = ConsumerManager(
        {"bootstrap.servers": "localhost:9092"},
        [SourceTopic.from_relative_time("orders", 3_600_000)],
        batch_size=10_000,
    )
    while not manager.is_live():
        table = manager.poll(timeout_ms=100)

The public names and the positions of arguments are those of kafkarrow. `cutoff_ms`, which kafkars
took as the third positional argument, is keyword-only.

This implementation keeps guarantees that kafkars documented but did not keep. Up to the end that
each partition had at the start, rows are ordered by time across all partitions, even if one broker
is slow. Memory is bounded in bytes as well as in rows. `is_live` becomes true when all rows have
been returned, not when they have been seen. The manager never joins a group and never commits.

A partition that has reached its end does not hold back the others. Rows that arrive later are
therefore returned immediately, in order of arrival.

Edge cases:

- a partition without a commit is read from its beginning (`from_committed`);
- a time after the last record starts at the end, so the partition is live immediately;
- an unknown topic, a topic that is named twice, and an empty topic list raise immediately;
- a topic without records is live immediately;
- a record without a timestamp has Kafka's -1, and is ordered after the record before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.librdkafka import client_settings, config_text
from rookery.client.settings import ClientSettings
from rookery.consumer.api import replay
from rookery.consumer.positions import Offsets, Position
from rookery.direct.blockinglog import LoopThread
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition

__all__ = [
    "MESSAGE_SCHEMA",
    "PARTITION_STATE_SCHEMA",
    "ConsumerManager",
    "PartitionInfo",
    "SourceTopic",
    "__version__",
    "get_message_schema",
    "get_partition_state_schema",
    "validate_source_topic",
]

__version__: Final = version("rookery")
"""The version of Rookery."""
BATCH_SIZE: Final = 10_000
MAX_BATCH_SIZE: Final = 100_000_000
HELD_BATCHES: Final = 5
"""The maximum number of batches of rows held in memory. More are held if one Kafka batch of each
partition exceeds this, because ordering requires it."""

_TIME: Final = pa.timestamp("ms", tz="UTC")
_MESSAGE: Final[dict[str, tuple[pa.DataType, bool]]] = {
    "key": (pa.binary(), True),
    "value": (pa.binary(), True),
    "topic": (pa.string(), False),
    "partition": (pa.int32(), False),
    "offset": (pa.int64(), False),
    "timestamp": (_TIME, False),
}
_STATE: Final[dict[str, tuple[pa.DataType, bool]]] = {
    "topic": (pa.string(), False),
    "partition": (pa.int32(), False),
    "replay_start_offset": (pa.int64(), False),
    "replay_end_offset": (pa.int64(), False),
    "consumed_offset": (pa.int64(), False),
    "released_offset": (pa.int64(), False),
    "last_consumed_timestamp": (_TIME, True),
    "is_live": (pa.bool_(), False),
    "is_paused": (pa.bool_(), False),
}
MESSAGE_SCHEMA: Final = pa.schema([pa.field(name, *how) for name, how in _MESSAGE.items()])
"""The schema of the batches that `poll` returns."""
PARTITION_STATE_SCHEMA: Final = pa.schema([pa.field(name, *how) for name, how in _STATE.items()])
"""The schema of the batch that `partition_state` returns."""
_NO_TIME: Final = pa.scalar(-1, pa.int64()).cast(_TIME)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic and its start position."""

    name: str
    policy: str = "latest"
    """earliest, latest, committed, relative_time or absolute_time."""
    time_ms: int | None = None
    """The age in milliseconds (relative_time), or milliseconds since 1970 (absolute_time)."""

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise ConfigError(
                f"{self.name}: policy {self.policy!r}: choose from {', '.join(_POLICIES)}"
            )
        if (self.time_ms is None) == self.policy.endswith("_time"):
            raise ConfigError(
                f"{self.name}: time_ms={self.time_ms}: for the policies relative_time and "
                f"absolute_time, and not for {self.policy}"
            )
        if self.time_ms is not None and self.time_ms < 0:
            raise ConfigError(f"{self.name}: time_ms={self.time_ms}: must be 0 or more")

    @staticmethod
    def from_earliest(name: str) -> SourceTopic:
        """Start at the log start offset."""
        return SourceTopic(name, "earliest")

    @staticmethod
    def from_latest(name: str) -> SourceTopic:
        """Start at the current log end."""
        return SourceTopic(name, "latest")

    @staticmethod
    def from_committed(name: str) -> SourceTopic:
        """Start at the committed offset of the group `group.id`, or at the log start if none."""
        return SourceTopic(name, "committed")

    @staticmethod
    def from_relative_time(name: str, time_ms: int) -> SourceTopic:
        """Start at the first record that is at most the given number of milliseconds old."""
        return SourceTopic(name, "relative_time", time_ms)

    @staticmethod
    def from_absolute_time(name: str, time_ms: int) -> SourceTopic:
        """Start at the first record that is not older than a time in milliseconds since 1970."""
        return SourceTopic(name, "absolute_time", time_ms)

    def position(self) -> Position:
        """Return the start position in the form that the stream accepts."""
        time_ms = self.time_ms or 0
        match self.policy:
            case "earliest":
                return "earliest"
            case "committed":
                return "committed"
            case "relative_time":
                return timedelta(milliseconds=time_ms)
            case "absolute_time":
                return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
            case _:
                return "latest"


_POLICIES: Final = ("earliest", "latest", "committed", "relative_time", "absolute_time")


class AnySourceTopic(Protocol):
    """A source topic of any library that has these attributes, such as kafkarrow's."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def policy(self) -> str:
        """The start policy."""

    @property
    def time_ms(self) -> int | None:
        """The time, for policies that need one."""


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
        sources = [_source(topic) for topic in topics]
        _check(sources)
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
            columns=list(_MESSAGE),
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
        columns = [batch.data.column(name) for name in _MESSAGE]
        columns[2] = columns[2].cast(pa.string())
        columns[5] = columns[5].fill_null(_NO_TIME)
        return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)

    def is_live(self) -> bool:
        """Return whether every row up to the captured end, or up to the cutoff, was returned."""
        if not self._is_live:
            self._is_live = self._has_passed_cutoff or self._stream.is_live
        return self._is_live

    def partitions(self) -> list[PartitionInfo]:
        """Return the state of every partition, sorted by topic and partition number."""
        rows = self._stream.partitions().to_pylist()
        return sorted((self._info(row) for row in rows), key=lambda one: (one.topic, one.partition))

    def partition_state(self) -> pa.RecordBatch:
        """Return the state of every partition as columns."""
        rows = [
            {
                "topic": one.topic,
                "partition": one.partition,
                "replay_start_offset": one.replay_start_offset,
                "replay_end_offset": one.replay_end_offset,
                "consumed_offset": one.consumed_offset,
                "released_offset": one.released_offset,
                "last_consumed_timestamp": one.low_water_mark_ms,
                "is_live": one.is_live,
                "is_paused": one.is_paused,
            }
            for one in self.partitions()
        ]
        return pa.RecordBatch.from_pylist(rows, PARTITION_STATE_SCHEMA)

    def low_water_mark(self) -> int | None:
        """Return the time up to which all rows can be returned; None until all have answered."""
        marks = [one.low_water_mark_ms for one in self.partitions() if not one.is_live]
        if any(mark is None for mark in marks):
            return None
        return min((mark for mark in marks if mark is not None), default=self._stream.frontier)

    get_priming_watermark = low_water_mark

    def held_message_count(self) -> int:
        """Return the number of rows that were decoded but not yet returned."""
        return sum(one.held for one in self.partitions())

    def paused_partition_count(self) -> int:
        """Return the number of partitions paused because they are ahead of the others."""
        return sum(one.is_paused for one in self.partitions())

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


def get_message_schema() -> pa.Schema:
    """Return the schema of the batches that `poll` returns."""
    return MESSAGE_SCHEMA


def get_partition_state_schema() -> pa.Schema:
    """Return the schema of the batch that `partition_state` returns."""
    return PARTITION_STATE_SCHEMA


def validate_source_topic(topic: AnySourceTopic | Mapping[str, Any]) -> None:
    """Check a source topic.

    Raises:
        ValueError: its policy is unknown, or its time does not fit the policy.
    """
    try:
        _source(topic)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _source(topic: AnySourceTopic | Mapping[str, Any]) -> SourceTopic:
    """Convert to our type; like kafkarrow, ignore a time that the policy does not use."""
    if isinstance(topic, SourceTopic):
        return topic
    if isinstance(topic, Mapping):
        unknown = sorted(topic.keys() - {"name", "policy", "time_ms"})
        if unknown or "name" not in topic:
            raise ConfigError(f"topics: {dict(topic)}: use the keys name, policy and time_ms")
        name, policy = topic["name"], topic.get("policy", "latest")
        time_ms = topic.get("time_ms")
    else:
        name, policy, time_ms = topic.name, topic.policy, topic.time_ms
    return SourceTopic(name, policy, time_ms if policy.endswith("_time") else None)


def _check(sources: Sequence[SourceTopic]) -> None:
    if not sources:
        raise ConfigError("topics: name one at least")
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"topics: {', '.join(twice)} is named twice")


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
            found: dict[str, Position] = {}
            for name in wanted:
                numbers = (await client.topic(name)).partitions
                places = [TopicPartition(name, number) for number in numbers]
                rows = await client.groups.committed_offsets(group, places)
                offsets = {(name, place.partition): row.offset for place, row in rows.items()}
                found[name] = Offsets(offsets)
            return found

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
