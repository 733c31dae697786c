"""Fetch sessions (KIP-227): a client names only what has changed since its last fetch.

    epoch 0: a session is opened, all partitions are named and answered
    epoch n: the partitions named are added or changed, the forgotten ones go, and only those
             with news are answered
    epoch -1: the session is closed

Most partitions of a large session have nothing new. Once their reader knows all about them they
are idle: no fetch looks at them until a commit changes them or the client names them.

The number of sessions is bounded: a new one takes the place of one that was not used for long, or
of a smaller one that has had its time; else its client does without, which every client can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rookery.broker.waiting import FetchWait, Waiting
from rookery.clock import Clock, Random
from rookery.cluster.state.partition import Partition
from rookery.errors import ApiError, ErrorCode
from rookery.log.tail import Key
from rookery.wire.messages.fetch import FetchPartition, FetchRequest

OPENING: Final = 0
CLOSING: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

TopicKey = bytes | str
"""A topic's id, or its name in versions below 13."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The bounds of fetch sessions."""

    max_sessions: int = 1000
    """Sessions kept (Kafka's max.incremental.fetch.session.cache.slots)."""
    eviction_ms: int = 120_000
    """For so long a session is safe (min.incremental.fetch.session.eviction.ms)."""


class Watched:
    """One partition that is fetched, and what its reader was told last."""

    __slots__ = (
        "high_watermark", "index", "key", "leader_epoch", "log_start", "max_bytes", "offset",
        "partition", "size_bytes", "topic",
    )  # fmt: skip

    def __init__(self, topic: TopicKey, part: FetchPartition) -> None:
        self.topic = topic
        self.index = part.partition
        self.high_watermark = -1
        self.log_start = -1
        self.key: Key | None = None
        """What the session is subscribed to, if it is."""
        self.partition: Partition | None = None
        self.size_bytes = 0
        """The size of the partition when it was last looked at or last changed."""
        self.update(part)

    def update(self, part: FetchPartition) -> None:
        """Take over from where on, and how much, the client wants to read."""
        self.offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.leader_epoch = part.current_leader_epoch


Partitions = dict[tuple[TopicKey, int], Watched]


class Sighting(NamedTuple):
    """A partition of the state in which a watched one was found."""

    watched: Watched
    key: Key
    partition: Partition


class Session:
    """What one client reads; `id` 0 for a fetch without a session."""

    __slots__ = (
        "_followed", "_waiting", "active", "created_ms", "epoch", "id", "is_closed",
        "is_incremental", "isolation_level", "partitions", "used_ms", "uses_ids", "waits",
    )  # fmt: skip

    def __init__(
        self,
        waiting: Waiting,
        session_id: int,
        partitions: Partitions,
        now_ms: int,
        *,
        uses_ids: bool,
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.is_incremental = False
        self.is_closed = False
        self.partitions = partitions
        self.active: dict[Watched, None] = dict.fromkeys(partitions.values())
        """The partitions that a fetch has to look at, in this order; the others are idle."""
        self.isolation_level = 0
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = now_ms
        self.waits: dict[FetchWait, None] = {}
        """The fetches of this session that wait."""
        self._waiting = waiting
        self._followed: dict[Key, Watched] = {}

    def note(self, watched: Watched, high_watermark: int, log_start: int) -> bool:
        """Note what is answered for a partition; return whether that is news to the client."""
        is_news = watched.high_watermark != high_watermark or watched.log_start != log_start
        watched.high_watermark, watched.log_start = high_watermark, log_start
        return is_news

    def rotate(self, served: Iterable[Watched]) -> None:
        """Put partitions that had records after the others: it is their turn next time."""
        active = self.active
        for watched in served:
            if watched in active:
                del active[watched]
                active[watched] = None

    def forget(self, topic: TopicKey, index: int) -> None:
        """Read a partition no more."""
        watched = self.partitions.pop((topic, index), None)
        if watched is not None:
            self.active.pop(watched, None)
            self._unfollow(watched)

    # Changes of partitions.

    def follow(self, sightings: Iterable[Sighting]) -> None:
        """Subscribe to partitions, where that is not done yet; not once the session is closed."""
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

    def rest(self, idle: Iterable[Watched]) -> None:
        """Look at these partitions no more until they change; the session follows them."""
        for watched in idle:
            self.active.pop(watched, None)

    def partition_changed(self, key: Key) -> None:
        """Look at a partition again; wake a fetch that waits, if there is enough."""
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
        """End all subscriptions and all waits, for good."""
        self.is_closed = True
        self._waiting.unsubscribe(self._followed, self)
        for watched in self._followed.values():
            watched.key = watched.partition = None
        self._followed.clear()
        for fetch in list(self.waits):
            fetch.hurry()

    def _unfollow(self, watched: Watched) -> None:
        if watched.key is not None:
            self._waiting.unsubscribe((watched.key,), self)
            del self._followed[watched.key]
            watched.key = watched.partition = None


class Sessions:
    """The sessions of one broker."""

    def __init__(
        self,
        waiting: Waiting,
        clock: Clock,
        random: Random,
        settings: SessionSettings | None = None,
    ) -> None:
        self._waiting = waiting
        self._clock = clock
        self._random = random
        self._settings = settings or SessionSettings()
        # The one that was used least recently comes first.
        self._by_id: OrderedDict[int, Session] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def resume(self, request: FetchRequest, version: int) -> Session:
        """Return what a request reads, in its session if it has one.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR; the client opens another session then.
        """
        uses_ids = version >= 13
        if request.session_epoch in {OPENING, CLOSING}:
            self._close(request.session_id)
            partitions: Partitions = {}
            _include(partitions, request, uses_ids=uses_ids)
            return self._open(request, partitions, uses_ids=uses_ids)
        session = self._find(request, uses_ids=uses_ids)
        named = _include(session.partitions, request, uses_ids=uses_ids)
        if request.isolation_level != session.isolation_level:
            # What is idle under one level may have records under the other.
            session.isolation_level = request.isolation_level
            named = list(session.partitions.values())
        session.active.update(dict.fromkeys(named))
        for topic in request.forgotten_topics_data:
            name: TopicKey = topic.topic_id if uses_ids else topic.topic
            for index in topic.partitions:
                session.forget(name, index)
        if not session.partitions:
            # Nothing is left to read: Kafka ends the session, too.
            self._close(session.id)
            return Session(self._waiting, 0, {}, 0, uses_ids=uses_ids)
        return session

    def _close(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.close()

    def _find(self, request: FetchRequest, *, uses_ids: bool) -> Session:
        session = self._by_id.get(request.session_id)
        if session is None:
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}"
            )
        if session.uses_ids != uses_ids:
            raise ApiError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session.id} was opened with topic "
                f"{'ids' if session.uses_ids else 'names'}",
            )
        if session.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, "
                f"not {request.session_epoch}",
            )
        session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
        session.is_incremental = True
        session.used_ms = self._clock.monotonic_ms()
        self._by_id.move_to_end(session.id)
        return session

    def _open(self, request: FetchRequest, partitions: Partitions, *, uses_ids: bool) -> Session:
        now = self._clock.monotonic_ms()
        is_wanted = request.session_epoch == OPENING and bool(partitions)
        if not is_wanted or not self._has_room(len(partitions), now):
            return Session(self._waiting, 0, partitions, now, uses_ids=uses_ids)
        session = Session(self._waiting, self._new_id(), partitions, now, uses_ids=uses_ids)
        self._by_id[session.id] = session
        return session

    def _has_room(self, size: int, now: int) -> bool:
        """Make room for a session of that many partitions, if anybody may be put out for it."""
        if len(self._by_id) < self._settings.max_sessions:
            return True
        if not self._by_id:
            return False
        oldest = next(iter(self._by_id.values()))
        if now - oldest.used_ms < self._settings.eviction_ms:
            oldest = min(self._by_id.values(), key=lambda session: len(session.partitions))
            is_safe = now - oldest.created_ms < self._settings.eviction_ms
            if is_safe or len(oldest.partitions) >= size:
                return False
        self._close(oldest.id)
        self.evicted += 1
        return True

    def _new_id(self) -> int:
        while True:
            found = int.from_bytes(self._random.token(4), "big") & 0x7FFFFFFF
            if found and found not in self._by_id:
                return found


def _include(partitions: Partitions, request: FetchRequest, *, uses_ids: bool) -> list[Watched]:
    """Add or change the partitions that a request names; return those."""
    named: list[Watched] = []
    for topic in request.topics:
        name: TopicKey = topic.topic_id if uses_ids else topic.topic
        for part in topic.partitions:
            watched = partitions.get((name, part.partition))
            if watched is None:
                watched = partitions[name, part.partition] = Watched(name, part)
            else:
                watched.update(part)
            named.append(watched)
    return named
