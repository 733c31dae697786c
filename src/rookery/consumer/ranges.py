"""Resolves a user's topics and positions to partitions with a start and an end offset."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rookery.consumer import positions
from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.consumer.fetch.shelf import ENDLESS
from rookery.consumer.fetch.source import RowSource
from rookery.consumer.positions import Position, Positions, Spec
from rookery.consumer.settings import StreamSettings
from rookery.errors import ConfigError
from rookery.model.offset import LATEST
from rookery.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class StreamSubscription:
    """The topics to read, with start and end positions."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    start: Positions
    end: Positions
    is_live: bool = False
    """Whether the stream continues after the end."""

    def __post_init__(self) -> None:
        if self.pattern is None and not self.topics:
            raise ConfigError("topics: name one at least")
        twice = sorted({name for name in self.topics if self.topics.count(name) > 1})
        if twice:
            raise ConfigError(f"topics: {', '.join(twice)} is named twice")

    @property
    def resumes(self) -> Checkpoint | None:
        """The checkpoint that the stream resumes at, if the start is one."""
        return self.start if isinstance(self.start, Checkpoint) else None


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The range of one partition to read."""

    place: TopicPartition
    start: int
    end: int
    """The end of the partition when it was looked up, or the requested end."""
    min_time_ms: int | None = None
    end_time_ms: int = ENDLESS
    mark: PartitionMark | None = None
    """The position to resume at, if any."""
    high_watermark: int = -1
    last_stable_offset: int = -1


class RangeResolver:
    """Looks up the ranges of partitions."""

    def __init__(
        self, source: RowSource, wanted: StreamSubscription, settings: StreamSettings, now_ms: int
    ) -> None:
        self._source = source
        self._wanted = wanted
        self._settings = settings
        self._now_ms = now_ms

    async def places(self) -> list[TopicPartition]:
        """Return the existing partitions, in the order that breaks ties.

        Raises:
            ApiError: a named topic does not exist.
            Unavailable: the source cannot be reached.
        """
        topics = await self._source.topics(self._wanted.topics, self._wanted.pattern)
        return [TopicPartition(name, number) for name, many in topics.items() for number in many]

    async def ranges(
        self,
        places: Sequence[TopicPartition],
        marks: Mapping[TopicPartition, PartitionMark] | None = None,
    ) -> list[PartitionRange]:
        """Return the ranges of partitions to read.

        Args:
            places: the partitions.
            marks: positions that take precedence over the start.

        Raises:
            ConfigError: a position is not valid.
            ApiError, Unavailable: raised by the source.
        """
        starts = {place: self._start(place) for place in places}
        ends = {place: self._end(place) for place in places}
        is_committed = self._settings.is_committed
        latest = dict.fromkeys(places, LATEST)
        first, last, stable, high, group = await asyncio.gather(
            self._source.find(_select_lookups(starts), is_committed=is_committed),
            self._source.find(_younger(ends)),
            self._source.find(latest, is_committed=is_committed),
            self._source.find(latest if is_committed else {}),
            self._fetch_committed(place for place, spec in starts.items() if spec.is_committed),
        )
        known = {**group, **(marks or {})}
        ranges = []
        for place in places:
            end_of_log = stable[place]
            mark = known.get(place)
            start = _start(starts[place], first.get(place), end_of_log)
            end = _end(ends[place], last.get(place), end_of_log)
            range_ = PartitionRange(place, start if mark is None else mark.offset, end, mark=mark)
            ranges.append(self._range(range_, high.get(place, end_of_log), end_of_log))
        return ranges

    def _range(self, range_: PartitionRange, high: int, stable: int) -> PartitionRange:
        topic = range_.place.topic
        start = positions.of_topic(self._wanted.start, topic, "earliest")
        min_time_ms = None
        if self._settings.exact_start and range_.mark is None:
            min_time_ms = positions.start_ms(start, self._now_ms)
        end = positions.of_topic(self._wanted.end, topic, "now")
        end_time_ms = positions.start_ms(end, self._now_ms)
        return replace(
            range_,
            min_time_ms=min_time_ms,
            end_time_ms=ENDLESS if end_time_ms is None or self._wanted.is_live else end_time_ms,
            mark=start.partitions.get(range_.place)
            if isinstance(start, Checkpoint)
            else range_.mark,
            high_watermark=high,
            last_stable_offset=stable if self._settings.is_committed else -1,
        )

    def _start(self, place: TopicPartition) -> Spec:
        start = positions.of_topic(self._wanted.start, place.topic, "earliest")
        spec = positions.spec(start, place, self._now_ms)
        if spec.is_committed and self._settings.group is None:
            raise ConfigError("start='committed': name the group whose offsets they are")
        return spec

    def _end(self, place: TopicPartition) -> Spec:
        end: Position = positions.of_topic(self._wanted.end, place.topic, "now")
        if end == "earliest" or end == "committed":  # noqa: PLR1714 (a set would hash positions)
            raise ConfigError(f"end={end!r}: end at 'now', a time, Offsets or a Checkpoint")
        if isinstance(end, positions.Offsets) and tuple(place) not in end.by_partition:
            return Spec(offset=LATEST)
        return positions.spec(end, place, self._now_ms)

    async def _fetch_committed(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        wanted = list(places)
        if not wanted or self._settings.group is None:
            return {}
        return await self._source.committed(self._settings.group, wanted)


def _select_lookups(specs: dict[TopicPartition, Spec]) -> dict[TopicPartition, int]:
    """Return the positions that the source must look up; offsets need no lookup."""
    lookups: dict[TopicPartition, int] = {}
    for place, spec in specs.items():
        if spec.time_ms is not None:
            lookups[place] = max(spec.time_ms, 0)
        elif spec.offset is not None and spec.offset < 0:
            lookups[place] = spec.offset
        elif spec.is_committed:
            lookups[place] = -2  # the start of a group without commits
    return lookups


def _younger(specs: dict[TopicPartition, Spec]) -> dict[TopicPartition, int]:
    """Return the times that must be looked up; the log end is looked up anyway."""
    return {
        place: max(spec.time_ms, 0) for place, spec in specs.items() if spec.time_ms is not None
    }


def _start(spec: Spec, offset: int | None, end: int) -> int:
    if spec.offset is not None and spec.offset >= 0:
        return spec.offset
    # No record is that recent: start at the next one to be written.
    return end if offset is None or offset < 0 else offset


def _end(spec: Spec, offset: int | None, end: int) -> int:
    if spec.offset is not None and spec.offset >= 0:
        return min(spec.offset, end)
    return end if offset is None or offset < 0 else min(offset, end)
