"""The state that all fetches share: sessions, waits, and a limit on reads from disk.

A fetch session subscribes to its partitions once and stays subscribed between its fetches. So the
cost of a wake-up depends on the number of changes and not on the number of subscriptions. Most
partitions of a large session have no new records. Once the reader is up to date, they are idle: no
fetch looks at them until a commit changes them or the client names them.

A commit wakes the fetches that wait for new records; there is no polling. A waiting fetch is one
object and one timer, not a task, so thousands can wait. It wakes one loop iteration after the
commit, when the writer has made the new batches visible to readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple, Protocol

from rookery.clock import Clock, Random
from rookery.cluster.entry import Entry
from rookery.cluster.replica import Replica
from rookery.cluster.state.outcome import EntryOutcome
from rookery.cluster.state.partition import Partition
from rookery.log.read.reader import LogReader, SureReader
from rookery.log.read.tail import Key
from rookery.service.fetchsessions import (
    FetchSession,
    FetchSessions,
    FetchSessionSettings,
    SessionPartition,
    SessionPartitions,
    TopicKey,
)
from rookery.wire.messages.fetch import FetchPartition

# The maximum number of partitions read from disk concurrently, for all clients together.
_READS_AT_ONCE: Final = 16


class PartitionSubscriber(Protocol):
    """An object that is notified about changes of partitions."""

    def partition_changed(self, key: Key) -> None:
        """Handle that a partition has grown, lost its oldest records or was deleted."""


class PartitionWatch:
    """Subscriptions to partitions, and the waiting fetches; every applied entry is reported."""

    def __init__(self, replica: Replica) -> None:
        self._by_key: dict[Key, dict[PartitionSubscriber, None]] = {}
        self.fetches: dict[FetchWait, None] = {}
        replica.listen(self._on_applied)

    def __len__(self) -> int:
        """Return the number of partitions that fetches currently wait for."""
        return sum(len(fetch.session.partitions) for fetch in self.fetches)

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions to partitions."""
        return sum(map(len, self._by_key.values()))

    def subscribe(self, key: Key, subscriber: PartitionSubscriber) -> None:
        """Report changes of a partition until `unsubscribe`."""
        subscribers = self._by_key.get(key)
        if subscribers is None:
            self._by_key[key] = {subscriber: None}
        else:
            subscribers[subscriber] = None

    def unsubscribe(self, keys: Iterable[Key], subscriber: PartitionSubscriber) -> None:
        """Stop reporting changes of these partitions."""
        for key in keys:
            subscribers = self._by_key.get(key)
            if subscribers is not None:
                subscribers.pop(subscriber, None)
                if not subscribers:
                    del self._by_key[key]

    def _on_applied(self, applied: EntryOutcome, _entry: Entry) -> None:
        self.report(applied.grown)

    def report(self, keys: Iterable[Key]) -> None:
        """Report that these partitions have changed."""
        by_key = self._by_key
        if not by_key:
            return
        for key in keys:
            subscribers = by_key.get(key)
            if subscribers is not None:
                for subscriber in list(subscribers):
                    subscriber.partition_changed(key)

    def report_all(self) -> None:
        """Report that any partition may have changed: the state was replaced."""
        self.report(list(self._by_key))

    def hurry_all(self) -> None:
        """End all waits, because the broker is stopping."""
        for fetch in list(self.fetches):
            fetch.hurry()


class FetchWait:
    """The wait of one fetch, until there are enough bytes or its time is up."""

    __slots__ = ("_is_due", "_loop", "_missing", "_timer", "_waiting", "_wake", "session")

    def __init__(
        self,
        waiting: PartitionWatch,
        session: WatchingSession,
        missing: int,
        seconds: float,
        wake: Callable[[], None],
    ) -> None:
        """Start to wait.

        Args:
            waiting: the waits of this broker.
            session: the session of the fetch; it is subscribed to its partitions.
            missing: the number of bytes that must arrive before a wake-up.
            seconds: the maximum time to wait.
            wake: called once, in its own loop iteration; not after `leave`.
        """
        self._waiting = waiting
        self.session = session
        self._missing = missing
        self._wake = wake
        self._is_due = False
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self.hurry)
        waiting.fetches[self] = None
        session.waits[self] = None

    def add(self, size: int) -> None:
        """Count bytes that were added to a partition; wake if there are enough.

        A size of 0 or less means that the partition has lost records or was deleted.
        """
        self._missing -= size
        if self._missing <= 0 or size <= 0:
            self.hurry()

    def hurry(self) -> None:
        """Wake regardless of the number of bytes."""
        if not self._is_due:
            self._is_due = True
            self.leave()
            self._loop.call_soon(self._wake)

    def leave(self) -> None:
        """End the wait without a wake."""
        self._timer.cancel()
        self._waiting.fetches.pop(self, None)
        self.session.waits.pop(self, None)


class WatchedPartition(SessionPartition):
    """One partition of a session, and the subscription to its changes."""

    __slots__ = ("key", "partition", "size_bytes")

    def __init__(self, topic: TopicKey, part: FetchPartition) -> None:
        super().__init__(topic, part)
        self.key: Key | None = None
        """The key that the session is subscribed to; None without a subscription."""
        self.partition: Partition | None = None
        self.size_bytes = 0
        """The size of the partition when it was last read or last changed."""


class StatePartition(NamedTuple):
    """A watched partition and its counterpart in the state."""

    watched: WatchedPartition
    key: Key
    partition: Partition


class WatchingSession(FetchSession[WatchedPartition]):
    """A session that is subscribed to the changes of its partitions."""

    __slots__ = ("_followed", "_waiting", "waits")

    def __init__(
        self,
        waiting: PartitionWatch,
        session_id: int,
        partitions: SessionPartitions[WatchedPartition],
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> None:
        super().__init__(session_id, partitions, now_ms, uses_ids=uses_ids)
        self.waits: dict[FetchWait, None] = {}
        """The waiting fetches of this session."""
        self._waiting = waiting
        self._followed: dict[Key, WatchedPartition] = {}

    def forget(self, topic: TopicKey, index: int) -> WatchedPartition | None:
        """Remove a partition from the session, and end the subscription to it."""
        watched = super().forget(topic, index)
        if watched is not None:
            self._unfollow(watched)
        return watched

    def follow(self, sightings: Iterable[StatePartition]) -> None:
        """Subscribe to partitions that are not followed yet, unless the session is closed."""
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
        """Mark a partition as active again; wake a waiting fetch if there are enough bytes."""
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
        waiting: PartitionWatch,
        clock: Clock,
        random: Random,
        settings: FetchSessionSettings | None = None,
    ) -> None:
        super().__init__(_Factory(waiting), clock, random, settings)


class _Factory:
    def __init__(self, waiting: PartitionWatch) -> None:
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


class FetchService:
    """The shared part of all fetches; one instance per broker."""

    def __init__(
        self,
        waiting: PartitionWatch,
        reader: LogReader,
        replica: Replica,
        clock: Clock,
        random: Random,
    ) -> None:
        """Start without sessions.

        Args:
            waiting: the waiting fetches and the subscriptions of sessions.
            reader: reads the log.
            replica: provides the current location of records if a read finds them moved.
            clock: used for the age of sessions.
            random: used to draw session ids.
        """
        self.sessions = WatchingSessions(waiting, clock, random)
        self.reader = SureReader(reader, replica)
        self.disk = asyncio.Semaphore(_READS_AT_ONCE)
        """Held while one partition is read from disk."""
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the rest of a fetch as a task, and keep a reference to it until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
