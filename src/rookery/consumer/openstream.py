"""The parts of an open stream, and how partitions are added: once, or by group assignment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rookery.client.settings import ClientSettings
from rookery.clock import Clock, SystemRandom
from rookery.consumer.background import Background
from rookery.consumer.checkpoint import Checkpoint, PartitionMark
from rookery.consumer.fetch import budget
from rookery.consumer.fetch.feed import Feed
from rookery.consumer.fetch.kafka import KafkaSource
from rookery.consumer.fetch.shelf import Shelves
from rookery.consumer.fetch.source import RowSource
from rookery.consumer.fetch.spill import SpillFiles
from rookery.consumer.group.classicmember import ClassicGroupMember
from rookery.consumer.group.commits import Commits
from rookery.consumer.group.member import ConsumerMember
from rookery.consumer.order.engine import StreamEngine
from rookery.consumer.output.progress import Bar
from rookery.consumer.output.shape import BatchShape
from rookery.consumer.ranges import RangeResolver, StreamSubscription
from rookery.consumer.settings import Rebalanced, StreamSettings, ms
from rookery.direct.place import ClusterAddress
from rookery.errors import ApiError, ConfigError, Error, ErrorCode, Unavailable
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition

log = logging.getLogger(__name__)


class OpenStream:
    """The source, the feed, the engine, and the tasks that add partitions to it."""

    def __init__(
        self,
        background: Background,
        cluster: ClientSettings | ClusterAddress,
        wanted: StreamSubscription,
        settings: StreamSettings,
        clock: Clock,
        made_at: int,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.opened_at = clock.monotonic_ms()
        self.bar = Bar(is_shown=settings.progress)
        self.background = background
        spill = None if settings.spill is None else SpillFiles(settings.spill)
        self.shelves = Shelves(budget.of_rows(settings.memory), spill)
        try:
            self._source = self.background.run(_make_source(self.background, cluster, settings))
            self._opening = RangeResolver(self._source, wanted, settings, made_at)
            places = self.background.run(self._opening.places())
            self._first = frozenset(places)
            self._topics = wanted.topics or tuple(sorted({place.topic for place in places}))
            is_member = settings.group is not None and wanted.is_live
            ranges = [] if is_member else self.background.run(self._opening.ranges(places))
            self.shape = BatchShape(settings, self._topics)
            self.engine = self._make_engine(wanted, made_at)
            self.commits = Commits(settings.group, self._source, self.background)
            self.engine.committer = self.commits
            self.engine.join_all(ranges)
            self._start(is_member=is_member, is_live=wanted.is_live)
        except BaseException:
            self.background.end()
            raise

    def _make_engine(self, wanted: StreamSubscription, made_at: int) -> StreamEngine:
        max_time_ms = made_at + ms(self._settings.max_time)
        resumes = wanted.resumes
        if resumes is not None:
            _check_resumed(resumes, self._settings, self._topics)
            if resumes.max_time_ms is not None:
                max_time_ms = resumes.max_time_ms
        engine = StreamEngine(
            self.shelves,
            self.shape,
            self._settings,
            self._clock,
            max_time_ms,
            is_live=wanted.is_live,
        )
        if resumes is not None:
            engine.resume(resumes)
        return engine

    def _start(self, *, is_member: bool, is_live: bool) -> None:
        feed = Feed(self._source, self.shelves, self._settings, self._clock, SystemRandom())
        self.background.run(self.background.spawn(feed.run()))
        if is_member:
            self.background.run(self.background.spawn(self._be_member()))
        elif is_live:
            self.background.run(self.background.spawn(self._discover()))

    async def _be_member(self) -> None:
        """Read the partitions that the group assigns."""
        if not isinstance(self._source, KafkaSource):
            raise ConfigError("group: groups need a broker; keep checkpoints instead")
        group, protocol = self._settings.group or "", self._settings.group_protocol
        try:
            if protocol != "classic":
                try:
                    await self._run(ConsumerMember(self._source.client, group, self._topics))
                except ApiError as error:
                    if error.code is not ErrorCode.UNSUPPORTED_VERSION or protocol != "auto":
                        raise
            look_ms = ms(self._settings.discover)
            await self._run(ClassicGroupMember(self._source.client, group, self._topics, look_ms))
        except Error as error:
            self.shelves.fail(error)

    async def _run(self, member: ConsumerMember | ClassicGroupMember) -> None:
        self.commits.member = member
        await member.run(self._on_given, self._on_taken)

    async def _on_given(self, places: Sequence[TopicPartition]) -> None:
        marks = await self._source.committed(self._settings.group or "", places)
        # Partitions created since the stream was opened are read from the beginning, whatever the
        # start.
        added = [place for place in places if place not in self._first and place not in marks]
        ranges = await self._opening.ranges(places, {**await self._beginnings(added), **marks})
        await self._tell(self._settings.on_assigned, places)
        await asyncio.to_thread(self.engine.join_all, ranges)

    async def _on_taken(self, places: Sequence[TopicPartition]) -> None:
        shelves = self.shelves.by_place
        stays = [shelves[place].index for place in places if place in shelves]
        await asyncio.to_thread(self.engine.leave_all, places)
        await self._tell(self._settings.on_revoked, places)
        self.commits.end_stays(stays)

    async def _tell(self, told: Rebalanced | None, places: Sequence[TopicPartition]) -> None:
        if told is None:
            return
        try:
            await asyncio.to_thread(told, places)
        except Exception as error:  # noqa: BLE001 (the reader receives any error)
            self.shelves.fail(error)

    async def _discover(self) -> None:
        """Look for new partitions, and read them from the beginning."""
        while True:
            await asyncio.sleep(max(self._settings.discover.total_seconds(), 0.01))
            try:
                known = self.shelves.by_place
                places = [place for place in await self._opening.places() if place not in known]
                if places:
                    ranges = await self._opening.ranges(places, await self._beginnings(places))
                    await asyncio.to_thread(self.engine.join_all, ranges)
            except (ApiError, Unavailable) as error:
                log.debug("could not look for new partitions: %s", error)
            except Error as error:
                self.shelves.fail(error)
                return

    async def _beginnings(
        self, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionMark]:
        if not places:
            return {}
        first = await self._source.find(dict.fromkeys(places, EARLIEST))
        return {place: PartitionMark(offset) for place, offset in first.items()}

    def finish(self) -> None:
        """Close everything; in a forked process, leave all of it to the parent."""
        if self.background.is_of_parent:
            return
        self.background.end()
        if self.shelves.spill is not None:
            self.shelves.spill.close()


async def _make_source(
    background: Background, cluster: ClientSettings | ClusterAddress, settings: StreamSettings
) -> RowSource:
    if isinstance(cluster, ClientSettings):
        source: RowSource = KafkaSource(
            cluster, is_committed=settings.is_committed, memory=settings.memory
        )
    else:
        from rookery.consumer.fetch.objects import ObjectSource  # noqa: PLC0415 (heavy)

        source = await ObjectSource.open(cluster, is_committed=settings.is_committed)
    await background.own(source)
    return source


def _check_resumed(
    resumes: Checkpoint, settings: StreamSettings, topics: tuple[str, ...] | list[str]
) -> None:
    """Reject a checkpoint with another order: rows would be lost or duplicated."""
    if resumes.lateness_ms != ms(settings.lateness):
        raise ConfigError(
            f"lateness: the checkpoint was made with {resumes.lateness_ms} ms; resume with that"
        )
    if resumes.topics and tuple(topics) != resumes.topics:
        raise ConfigError(
            f"topics: the checkpoint was made with {list(resumes.topics)}, in this order"
        )
