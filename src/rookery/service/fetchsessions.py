"""Fetch sessions (KIP-227): a client names only the changes since its last fetch.

    epoch 0: a session is opened, all partitions are named and answered
    epoch n: the partitions named are added or changed, the forgotten ones go, and only those
             with news are answered
    epoch -1: the session is closed

A session separates the partitions that a fetch must check (`active`) from those known to have
nothing new.

The number of sessions is limited. A new one replaces one that was not used for long, or a smaller
one that is old enough. Otherwise the client works without a session, as every client can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from rookery.clock import Clock, Random
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.fetch import FetchPartition, FetchRequest

OPENING: Final = 0
CLOSING: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

TopicKey = bytes | str
"""A topic's id, or its name in versions below 13."""


@dataclass(frozen=True, slots=True)
class FetchSessionSettings:
    """The limits of fetch sessions."""

    max_sessions: int = 1000
    """The maximum number of sessions (Kafka's max.incremental.fetch.session.cache.slots)."""
    eviction_ms: int = 120_000
    """How long a session is not evicted (min.incremental.fetch.session.eviction.ms)."""


class SessionPartition:
    """One partition that is fetched, and the watermarks that its reader knows."""

    __slots__ = (
        "high_watermark", "index", "leader_epoch", "log_start", "max_bytes", "offset", "topic",
    )  # fmt: skip

    def __init__(self, topic: TopicKey, part: FetchPartition) -> None:
        self.topic = topic
        self.index = part.partition
        self.high_watermark = -1
        self.log_start = -1
        self.update(part)

    def update(self, part: FetchPartition) -> None:
        """Update the client's position and limits."""
        self.offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.leader_epoch = part.current_leader_epoch


P = TypeVar("P", bound=SessionPartition)
SessionPartitions = dict[tuple[TopicKey, int], P]


class FetchSession(Generic[P]):
    """The partitions that one client reads; `id` is 0 for a fetch without a session."""

    __slots__ = (
        "active", "created_ms", "epoch", "id", "is_closed", "is_incremental", "isolation_level",
        "partitions", "used_ms", "uses_ids",
    )  # fmt: skip

    def __init__(
        self, session_id: int, partitions: SessionPartitions[P], now_ms: int, *, uses_ids: bool
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.is_incremental = False
        self.is_closed = False
        self.partitions = partitions
        self.active: dict[P, None] = dict.fromkeys(partitions.values())
        """The partitions that a fetch must check, in this order; the others are idle."""
        self.isolation_level = 0
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = now_ms

    def note(self, partition: P, high_watermark: int, log_start: int) -> bool:
        """Record the watermarks in a response; return whether they are new to the client."""
        is_news = partition.high_watermark != high_watermark or partition.log_start != log_start
        partition.high_watermark, partition.log_start = high_watermark, log_start
        return is_news

    def rotate(self, served: Iterable[P]) -> None:
        """Move partitions that had records to the end, so that the others come first."""
        active = self.active
        for partition in served:
            if partition in active:
                del active[partition]
                active[partition] = None

    def rest(self, idle: Iterable[P]) -> None:
        """Mark partitions as idle: no fetch checks them until they are active again."""
        for partition in idle:
            self.active.pop(partition, None)

    def forget(self, topic: TopicKey, index: int) -> P | None:
        """Remove a partition from the session; return it if it was there."""
        partition = self.partitions.pop((topic, index), None)
        if partition is not None:
            self.active.pop(partition, None)
        return partition

    def close(self) -> None:
        """End the session."""
        self.is_closed = True


S = TypeVar("S", bound=FetchSession[Any])
S_co = TypeVar("S_co", bound=FetchSession[Any], covariant=True)


class SessionFactory(Protocol[P, S_co]):
    """Creates the sessions and partitions of a server, which can extend the base classes."""

    def partition(self, topic: TopicKey, part: FetchPartition) -> P:
        """Create a partition that a session names for the first time."""

    def session(
        self, session_id: int, partitions: SessionPartitions[P], now_ms: int, *, uses_ids: bool
    ) -> S_co:
        """Create a session; `session_id` is 0 for a single fetch."""


class FetchSessions(Generic[P, S]):
    """All fetch sessions of a server."""

    def __init__(
        self,
        factory: SessionFactory[P, S],
        clock: Clock,
        random: Random,
        settings: FetchSessionSettings | None = None,
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._random = random
        self._settings = settings or FetchSessionSettings()
        # Ordered by last use, the least recently used first.
        self._by_id: OrderedDict[int, S] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def resume(self, request: FetchRequest, version: int) -> S:
        """Return the session of a request, or a temporary one.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR; the client then opens another session.
        """
        uses_ids = version >= 13
        if request.session_epoch in {OPENING, CLOSING}:
            self._close(request.session_id)
            partitions: SessionPartitions[P] = {}
            self._include(partitions, request, uses_ids=uses_ids)
            return self._open(request, partitions, uses_ids=uses_ids)
        session = self._find(request, uses_ids=uses_ids)
        named = self._include(session.partitions, request, uses_ids=uses_ids)
        if request.isolation_level != session.isolation_level:
            # Partitions that are idle under one level may have records under the other.
            session.isolation_level = request.isolation_level
            named = list(session.partitions.values())
        session.active.update(dict.fromkeys(named))
        for topic in request.forgotten_topics_data:
            name: TopicKey = topic.topic_id if uses_ids else topic.topic
            for index in topic.partitions:
                session.forget(name, index)
        if not session.partitions:
            # No partitions are left; Kafka also closes the session.
            self._close(session.id)
            return self._factory.session(0, {}, 0, uses_ids=uses_ids)
        return session

    def _close(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            session.close()

    def _find(self, request: FetchRequest, *, uses_ids: bool) -> S:
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

    def _open(
        self, request: FetchRequest, partitions: SessionPartitions[P], *, uses_ids: bool
    ) -> S:
        now = self._clock.monotonic_ms()
        is_wanted = request.session_epoch == OPENING and bool(partitions)
        if not is_wanted or not self._has_room(len(partitions), now):
            return self._factory.session(0, partitions, now, uses_ids=uses_ids)
        session = self._factory.session(self._new_id(), partitions, now, uses_ids=uses_ids)
        self._by_id[session.id] = session
        return session

    def _has_room(self, size: int, now: int) -> bool:
        """Make room for a session of this size by evicting another one if possible."""
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
            session_id = int.from_bytes(self._random.token(4), "big") & 0x7FFFFFFF
            if session_id and session_id not in self._by_id:
                return session_id

    def _include(
        self, partitions: SessionPartitions[P], request: FetchRequest, *, uses_ids: bool
    ) -> list[P]:
        """Add or change the partitions that a request names; return those."""
        named: list[P] = []
        for topic in request.topics:
            name: TopicKey = topic.topic_id if uses_ids else topic.topic
            for part in topic.partitions:
                partition = partitions.get((name, part.partition))
                if partition is None:
                    partition = partitions[name, part.partition] = self._factory.partition(
                        name, part
                    )
                else:
                    partition.update(part)
                named.append(partition)
        return named
