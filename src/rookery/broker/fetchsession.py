"""Fetch sessions of a broker: they follow their partitions, and know which have changed.

Most partitions of a large session have nothing new. Once their reader knows all about them they
are idle: no fetch looks at them until a commit changes them or the client names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rookery.broker.waiting import FetchWait, Waiting
from rookery.clock import Clock, Random
from rookery.cluster.state.partition import Partition
from rookery.log.tail import Key
from rookery.service.fetchsessions import (
    FetchSession,
    FetchSessions,
    FetchSessionSettings,
    SessionPartition,
    SessionPartitions,
    TopicKey,
)
from rookery.wire.messages.fetch import FetchPartition


class WatchedPartition(SessionPartition):
    """One partition of a session, and the subscription to its changes."""

    __slots__ = ("key", "partition", "size_bytes")

    def __init__(self, topic: TopicKey, part: FetchPartition) -> None:
        super().__init__(topic, part)
        self.key: Key | None = None
        """What the session is subscribed to, if it is."""
        self.partition: Partition | None = None
        self.size_bytes = 0
        """The size of the partition when it was last looked at or last changed."""


class Sighting(NamedTuple):
    """The partition of the state that belongs to a watched one."""

    watched: WatchedPartition
    key: Key
    partition: Partition


class WatchingSession(FetchSession[WatchedPartition]):
    """A session that is subscribed to the changes of its partitions."""

    __slots__ = ("_followed", "_waiting", "waits")

    def __init__(
        self,
        waiting: Waiting,
        session_id: int,
        partitions: SessionPartitions[WatchedPartition],
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> None:
        super().__init__(session_id, partitions, now_ms, uses_ids=uses_ids)
        self.waits: dict[FetchWait, None] = {}
        """The fetches of this session that wait."""
        self._waiting = waiting
        self._followed: dict[Key, WatchedPartition] = {}

    def forget(self, topic: TopicKey, index: int) -> WatchedPartition | None:
        """Remove a partition from the session, and end the subscription to it."""
        watched = super().forget(topic, index)
        if watched is not None:
            self._unfollow(watched)
        return watched

    def follow(self, sightings: Iterable[Sighting]) -> None:
        """Subscribe to partitions that are not followed yet; not once the session is closed."""
        if self.is_closed:
            return
        for watched, key, partition in sightings:
            if watched.key != key:
                self._unfollow(watched)
                watched.key = key
                self._followed[key] = watched
                self._waiting.subscribe(key, self)
            watched.partition = partition
            watched.size_bytes = partition.size_bytes

    def partition_changed(self, key: Key) -> None:
        """Make a partition active again; wake a fetch that waits, if there is enough."""
        watched = self._followed.get(key)
        partition = watched.partition if watched is not None else None
        if watched is None or partition is None:
            return
        self.active[watched] = None
        added = partition.size_bytes - watched.size_bytes
        watched.size_bytes = partition.size_bytes
        for fetch in list(self.waits):
            fetch.add(added)

    def close(self) -> None:
        """End the session with all its subscriptions and waits."""
        super().close()
        self._waiting.unsubscribe(self._followed, self)
        for watched in self._followed.values():
            watched.key = watched.partition = None
        self._followed.clear()
        for fetch in list(self.waits):
            fetch.hurry()

    def _unfollow(self, watched: WatchedPartition) -> None:
        if watched.key is not None:
            self._waiting.unsubscribe((watched.key,), self)
            del self._followed[watched.key]
            watched.key = watched.partition = None


class WatchingSessions(FetchSessions[WatchedPartition, WatchingSession]):
    """The sessions of one broker."""

    def __init__(
        self,
        waiting: Waiting,
        clock: Clock,
        random: Random,
        settings: FetchSessionSettings | None = None,
    ) -> None:
        super().__init__(_Factory(waiting), clock, random, settings)


class _Factory:
    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def partition(self, topic: TopicKey, part: FetchPartition) -> WatchedPartition:
        return WatchedPartition(topic, part)

    def session(
        self,
        session_id: int,
        partitions: SessionPartitions[WatchedPartition],
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> WatchingSession:
        return WatchingSession(self._waiting, session_id, partitions, now_ms, uses_ids=uses_ids)
